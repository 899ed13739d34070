"""A turn's model call: one effect, which the extensions hear as it streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from forestay.agents import pi
from forestay.agents.decide import AgentState
from forestay.agents.ports import Heard
from forestay.agents.stage import Stage
from forestay.agents.steps import Answered
from forestay.kernel import Problem
from forestay.models import Completion, Message, Model, Params, ToolCall, ToolSpec, Usage, fold
from forestay.tools import Effects, specs_of


class ModelFailed(Exception):
    """The model could not answer; the Problem says why. Nothing was recorded, so that trying again asks again."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Direct:
    """`AgentModel` straight over a model: each answer is an effect, recorded whole."""

    def __init__(self, model: Model, effects: Effects) -> None:
        self._model = model
        self._effects = effects

    @property
    def name(self) -> str:
        return self._model.name

    async def once(self, key: str, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        async def plain() -> Any:
            return msgspec.to_builtins(await ask())

        return msgspec.convert(await self._effects.perform(key, plain, cls="read"), Completion)

    async def turn(
        self, key: str, messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params, heard: Heard
    ) -> Completion:
        return await fold(self._model.stream(messages, tools=tools, params=params), heard)


async def call_model(stage: Stage, state: AgentState) -> Answered:
    key = f"agent/turn-{state.turns}/model"

    async def ask() -> Completion:
        await stage.tell_turn_end(state)
        await stage.tell("turn_start", turnIndex=state.turns)
        for message in _since_last_answer(state):
            await stage.tell_message(message)
        try:
            return await _ask(stage, state, key)
        except Problem as problem:
            raise ModelFailed(problem) from problem

    answer = await stage.model.once(key, ask)
    asked = answer.asked or (answer.usage or Usage(0, 0),)
    return Answered(answer.text, _distinct(answer.tool_calls), answer.finish_reason, answer.usage, asked)


async def _ask(stage: Stage, state: AgentState, key: str) -> Completion:
    messages, params = await _prepared(stage, state)
    told, listens, responded = "", stage.hooks.listens("message_update"), False
    streams, named = stage.hooks.listens("provider_stream_event"), stage.model.name

    async def respond() -> None:
        nonlocal responded
        if not responded:  # what a provider says in its headers stays with it
            responded = True
            await stage.tell("after_provider_response", status=200, headers={})
            await stage.tell_message(Message("assistant", ""), "message_start")

    async def heard(text: str) -> None:
        nonlocal told
        await respond()
        if streams and text:
            data = {"type": "text_delta", "delta": text}
            await stage.tell("provider_stream_event", provider="forestay", api="forestay", model=named, data=data)
        if listens and text:
            told += text
            change = {"type": "text_delta", "delta": text}
            await stage.tell(
                "message_update", message=pi.to_pi(Message("assistant", told)), assistantMessageEvent=change
            )

    answer = await stage.model.turn(key, messages, specs_of(state.surface), params, heard)
    await respond()
    await stage.tell_message(Message("assistant", answer.text, _distinct(answer.tool_calls)), "message_end")
    return answer


async def _prepared(stage: Stage, state: AgentState) -> tuple[list[Message], Params]:
    """The messages and parameters after the extensions changed them (`context`, `before_provider_request`)."""
    messages = list(state.messages)
    params = Params(max_tokens=stage.manifest.max_tokens, temperature=stage.manifest.temperature)
    if not stage.hooks.listens("context", "context_with_system", "before_provider_request"):
        return messages, params
    if stage.hooks.listens("context"):
        spoken = [message for message in messages if message.role != "system"]
        answer = await stage.tell("context", messages=[pi.to_pi(message) for message in spoken])
        messages = [message for message in messages if message.role == "system"] + _replaced(spoken, answer)
    if stage.hooks.listens("context_with_system"):
        answer = await stage.tell("context_with_system", messages=[pi.to_pi(message) for message in messages])
        messages = _replaced(messages, answer)
    if not stage.hooks.listens("before_provider_request"):
        return messages, params
    payload = {
        "model": stage.model.name,
        "messages": [pi.to_pi(message) for message in messages],
        "tools": msgspec.to_builtins(specs_of(state.surface)),
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
    }
    answer = await stage.tell("before_provider_request", payload=payload)
    changed = answer.get("payload", answer) if answer is not None else None
    if not isinstance(changed, dict):
        return messages, params
    tokens, warmth = changed.get("max_tokens"), changed.get("temperature")
    params = Params(
        max_tokens=tokens if isinstance(tokens, int) else params.max_tokens,
        temperature=warmth if isinstance(warmth, int | float) else params.temperature,
    )
    return _replaced(messages, changed), params


def _since_last_answer(state: AgentState) -> list[Message]:
    """The user's messages since the last answer: the prompt, or a correction."""
    answers = [at for at, message in enumerate(state.messages) if message.role == "assistant"]
    new = state.messages[answers[-1] :] if answers else state.messages
    return [message for message in new if message.role == "user"]


def _replaced(messages: list[Message], answer: dict[str, Any] | None) -> list[Message]:
    if not answer or not isinstance(answer.get("messages"), list):
        return messages
    changed = [pi.from_pi(message) for message in answer["messages"]]
    return [message for message in changed if message is not None]


def _distinct(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Calls with ids of their own: results are paired by id, and some models repeat or omit it."""
    seen: set[str] = set()
    distinct = []
    for number, call in enumerate(calls):
        call_id = call.id if call.id and call.id not in seen else f"{call.id or 'call'}_{number}"
        seen.add(call_id)
        distinct.append(msgspec.structs.replace(call, id=call_id))
    return tuple(distinct)
