"""Performing a turn's model call: one effect, told to the extensions as it streams."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.agents import pi
from forestay.agents.decide import AgentState
from forestay.agents.stage import Stage
from forestay.agents.steps import Answered
from forestay.kernel import Problem
from forestay.models import Delta, FinishReason, Message, Params, ToolCall, Usage


class ModelFailed(Exception):
    """The model could not answer; the Problem says why. Nothing was recorded, so that trying again asks again."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


async def call_model(stage: Stage, state: AgentState) -> Answered:
    async def body() -> Answered:
        await stage.tell_turn_end(state)
        await stage.tell("turn_start", turnIndex=state.turns)
        for message in _since_last_answer(state):
            await stage.tell_message(message)
        try:
            return await _ask(stage, state)
        except Problem as problem:
            raise ModelFailed(problem) from problem

    key = f"agent/turn-{state.turns}/model"
    if getattr(stage.model, "records", False):  # then repeating this step does not ask the provider again
        return await stage.step(key, body, Answered)
    return await stage.once(key, body, "read", Answered)


async def _ask(stage: Stage, state: AgentState) -> Answered:
    messages, params = await _prepared(stage, state)
    await stage.tell("message_start", message=pi.to_pi(Message("assistant", "")))
    answer = _Answer()
    stream = stage.model.stream(messages, tools=[tool.spec for tool in state.surface], params=params)
    try:
        async for delta in stream:
            answer.add(delta)
            if delta.text and stage.hooks.listens("message_update"):
                change = {"type": "text_delta", "delta": delta.text}
                partial = pi.to_pi(Message("assistant", answer.text))
                await stage.tell("message_update", message=partial, assistantMessageEvent=change)
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    answered = answer.whole()
    await stage.tell("message_end", message=pi.to_pi(Message("assistant", answered.text, answered.tool_calls)))
    return answered


class _Answer:
    """An answer as it grows."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._finish: FinishReason | None = None
        self._usage: Usage | None = None

    def add(self, delta: Delta) -> None:
        self._texts.append(delta.text)
        self._calls.extend(delta.tool_calls)
        self._finish = delta.finish_reason or self._finish
        self._usage = delta.usage or self._usage

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def whole(self) -> Answered:
        if self._finish is None:
            raise Problem("provider_error", "The model's answer broke off before its end.")
        return Answered(self.text, _distinct(self._calls), self._finish, self._usage)


async def _prepared(stage: Stage, state: AgentState) -> tuple[list[Message], Params]:
    """The messages and parameters after the extensions had their say (`context`, `before_provider_request`)."""
    system = [message for message in state.messages if message.role == "system"]
    spoken = [message for message in state.messages if message.role != "system"]
    answer = await stage.tell("context", messages=[pi.to_pi(message) for message in spoken])
    messages = system + _replaced(spoken, answer)
    params = Params(max_tokens=stage.manifest.max_tokens, temperature=stage.manifest.temperature)
    payload = {
        "model": stage.model.name,
        "messages": [pi.to_pi(message) for message in messages],
        "tools": [msgspec.to_builtins(tool.spec) for tool in state.surface],
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
    """What the user said that no turn has told yet: the prompt, or a correction."""
    answers = [at for at, message in enumerate(state.messages) if message.role == "assistant"]
    new = state.messages[answers[-1] :] if answers else state.messages
    return [message for message in new if message.role == "user"]


def _replaced(messages: list[Message], answer: dict[str, Any] | None) -> list[Message]:
    if not answer or not isinstance(answer.get("messages"), list):
        return messages
    changed = [pi.from_pi(message) for message in answer["messages"]]
    return [message for message in changed if message is not None]


def _distinct(calls: list[ToolCall]) -> tuple[ToolCall, ...]:
    """Calls with ids of their own: results are paired by id, and some models repeat or omit it."""
    seen: set[str] = set()
    distinct = []
    for number, call in enumerate(calls):
        call_id = call.id if call.id and call.id not in seen else f"{call.id or 'call'}_{number}"
        seen.add(call_id)
        distinct.append(msgspec.structs.replace(call, id=call_id))
    return tuple(distinct)
