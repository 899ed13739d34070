"""What an invocation works with, and its steps that reach outside: a model call, a tool call, and listening.

Every step does two things: it happens once, and it is told to the extensions.

P1  What influenced the loop is inside the recorded value: the answer, the arguments after an extension changed them,
    the result after an extension replaced it. A replay asks nobody.
P2  Extensions hear of a step while it is performed. A step that is performed again after a crash tells them again;
    a recorded one does not.
P3  A `tool_call` listener that fails blocks the call (fails closed, Pi P10); any other is its own host's to record.

An agent hears while it works: between a turn and the next, and before its end.

H1  What it heard is on record before the model is asked again, and in the conversation once. Until then it waits there.
H2  Where the answer that followed is on record, nothing more is heard: a replay hears what the first life heard.
H3  Extensions are told the end of the turn first, so that what they say to it is heard in time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from forestay.agents import pi
from forestay.agents.decide import AgentState
from forestay.agents.events import Invocation
from forestay.agents.manifest import AgentManifest
from forestay.agents.ports import AgentModel, Heard, Hooks, Memory, Transcript
from forestay.agents.steps import (
    Answered,
    Approved,
    AskApproval,
    CallTool,
    Gated,
    Interjected,
    Interjection,
    Listen,
    RefuseCall,
    Returned,
    ReturnStatus,
)
from forestay.kernel import Clock, Problem
from forestay.models import Completion, Message, Model, Params, ToolCall, ToolSpec, Usage, fold
from forestay.tools import (
    ApprovalAnswer,
    Approvals,
    EffectClass,
    Effects,
    Gate,
    Tool,
    ToolOutcome,
    ToolSource,
    approved,
    fit_for,
    once_or_ask,
    specs_of,
)

T = TypeVar("T")


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one invocation touches."""

    manifest: AgentManifest
    invocation: Invocation
    model: AgentModel
    tools: ToolSource
    effects: Effects
    hooks: Hooks
    gate: Gate
    approvals: Approvals
    memory: Memory | None
    clock: Clock
    transcript: Transcript | None = None

    async def once(
        self,
        key: str,
        body: Callable[[], Awaitable[T]],
        cls: EffectClass,
        type: type[T],
        identity: str | None = None,
        *,
        later: bool = False,
    ) -> T:
        """The recorded value of `key`, typed; JSON in the record."""
        made: list[T] = []

        async def plain() -> Any:
            made.append(await body())
            return msgspec.to_builtins(made[0])

        done = await self.effects.perform(key, plain, cls=cls, idempotency_key=identity, later=later)
        return made[0] if made else msgspec.convert(done, type)

    async def step(self, key: str, body: Callable[[], Awaitable[T]], type: type[T]) -> T:
        """As `once`, for what the loop does itself: it may be repeated, so it is recorded with what comes next."""
        return await self.once(key, body, "read", type, later=True)

    async def tell(self, event: str, **payload: Any) -> dict[str, Any] | None:
        """The extensions' merged answer to `event`, or None."""
        return await self.hooks.emit({"type": event, **payload}) if self.hooks.listens(event) else None

    async def tell_message(self, message: Message, *events: str) -> None:
        events = events or ("message_start", "message_end")
        if not self.hooks.listens(*events):  # what nobody wants is not even put together
            return
        for event in events:
            if self.hooks.listens(event):
                await self.hooks.emit({"type": event, "message": pi.to_pi(message)})

    async def tell_turn_end(self, state: AgentState) -> None:
        """The end of the turn that the conversation ends with, if there was one."""
        if not state.turns or not self.hooks.listens("turn_end"):
            return
        at = max(index for index, message in enumerate(state.messages) if message.role == "assistant")
        results = [pi.to_pi(message) for message in state.messages[at + 1 :] if message.role == "tool"]
        await self.tell(
            "turn_end", turnIndex=state.turns - 1, message=pi.to_pi(state.messages[at]), toolResults=results
        )


class _Called(msgspec.Struct, frozen=True):
    outcome: ToolOutcome
    duration_ms: int | None


async def gate_call(stage: Stage, state: AgentState, call: ToolCall) -> Gated:
    async def body() -> Gated:
        await stage.tell("tool_execution_start", toolCallId=call.id, toolName=call.name, args=call.arguments)
        tool = state.tool(call.name)
        if tool is None:
            return Gated("refuse", reason=f"There is no tool {call.name!r}.", status="error")
        if call.malformed is not None:
            return Gated("refuse", reason="The arguments are not a JSON object.", status="error")
        try:
            arguments = await _fit(stage, state, tool, call.arguments)
        except Problem as problem:
            return Gated("refuse", reason=problem.message, status="error")
        try:
            answer = await stage.tell("tool_call", toolName=call.name, toolCallId=call.id, input=arguments)
            if answer and answer.get("block"):
                reason = str(answer.get("reason") or "An extension blocked this call.")
                return Gated("refuse", arguments, reason, "forbidden")
            if answer and isinstance(answer.get("input"), dict):
                arguments = tool.fit(answer["input"])
        except Problem as problem:
            status: ReturnStatus = "error" if problem.key == "schema_mismatch" else "forbidden"
            return Gated("refuse", reason=problem.message, status=status)
        return await _decided(stage, tool, arguments)

    return await stage.step(f"agent/{state.place}/gate", body, Gated)


async def _fit(stage: Stage, state: AgentState, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the tool takes them; the tool's own preparation happens once."""
    key = f"agent/{state.place}/prepared"
    return await fit_for(stage.tools, tool, arguments, lambda prepare: stage.step(key, prepare, Any))


async def ask_approval(stage: Stage, state: AgentState, step: AskApproval) -> Approved:
    tool = state.tool(step.call.name)
    assert tool is not None, "decide asks only for tools that are there"
    key, known = f"agent/{state.place}/approval", {"agentId": stage.manifest.agent_id}
    answer = await approved(stage.approvals, key, "agent", tool, step.arguments, step.reason, **known)
    return Approved(answer.action, answer.arguments, answer.note)


async def call_tool(stage: Stage, place: str, step: CallTool) -> Returned:
    """The tool's effect, then what the extensions make of its result."""
    key = f"agent/{place}/call"
    identity = f"{stage.invocation.id}/{key}" if step.tool.effect == "write" and step.tool.takes_key else None

    async def body() -> _Called:
        began = stage.clock.monotonic()

        async def update(partial: Any) -> None:
            await stage.tell(
                "tool_execution_update",
                toolCallId=step.call.id,
                toolName=step.call.name,
                args=step.arguments,
                partialResult=partial,
            )

        try:
            outcome = await stage.tools.call(
                step.tool, step.arguments, call_id=step.call.id, idempotency_key=identity, update=update
            )
        except Problem as problem:
            if problem.key == "effect_uncertain":
                raise
            outcome = ToolOutcome(problem.message, is_error=True, details=problem.as_lafs())
        return _Called(outcome, round((stage.clock.monotonic() - began) * 1000))

    called = await _once_or_ask(stage, key, body, step, identity)
    return await _settled(stage, place, step.call, step.arguments, called.outcome, called.duration_ms)


async def refuse_call(stage: Stage, place: str, step: RefuseCall) -> Returned:
    async def body() -> Returned:
        await _tell_end(stage, step.call, step.reason, is_error=True)
        return Returned(step.reason, step.status)

    return await stage.step(f"agent/{place}/result", body, Returned)


async def _decided(stage: Stage, tool: Tool, arguments: dict[str, Any]) -> Gated:
    decision = await stage.gate.decide(tool, arguments)
    if decision.effect == "deny":
        return Gated("refuse", arguments, decision.reason or "Policy denies this call.", "forbidden")
    return Gated("prompt" if decision.effect == "prompt" else "run", arguments, decision.reason)


async def _once_or_ask(
    stage: Stage, key: str, body: Callable[[], Awaitable[_Called]], step: CallTool, identity: str | None
) -> _Called:
    def without(answer: ApprovalAnswer, _problem: Problem) -> _Called:
        text = answer.note or "It is not known whether this was done. It was not run again."
        return _Called(ToolOutcome(text, is_error=True), None)

    return await once_or_ask(
        key,
        lambda attempt: stage.once(attempt, body, step.tool.effect, _Called, identity),
        stage.approvals,
        step.tool,
        step.arguments,
        otherwise="go on without, and say in the note what you found.",
        rejected=without,
        callId=step.call.id,
    )


async def _settled(
    stage: Stage, place: str, call: ToolCall, arguments: dict[str, Any], outcome: ToolOutcome, duration: int | None
) -> Returned:
    async def body() -> Returned:
        answer = await stage.tell(
            "tool_result",
            toolName=call.name,
            toolCallId=call.id,
            input=arguments,
            content=pi.blocks_of(outcome.content),
            details=outcome.details,
            isError=outcome.is_error,
        )
        text, failed, details = outcome.content, outcome.is_error, outcome.details
        if answer is not None:
            text = pi.text_of(answer["content"]) if "content" in answer else text
            failed, details = bool(answer.get("isError", failed)), answer.get("details", details)
        await _tell_end(stage, call, text, is_error=failed)
        return Returned(text, "error" if failed else "ok", duration, details if stage.transcript else None)

    return await stage.step(f"agent/{place}/result", body, Returned)


async def _tell_end(stage: Stage, call: ToolCall, text: str, *, is_error: bool) -> None:
    result = {"content": pi.blocks_of(text)}
    await stage.tell("tool_execution_end", toolCallId=call.id, toolName=call.name, result=result, isError=is_error)
    await stage.tell_message(Message("tool", text, tool_call_id=call.id))


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

    def writer(self, key: str) -> str:
        return ""

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
        if not state.hears:  # else it was told when the agent listened
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
    calls, writer = _distinct(answer.tool_calls), stage.model.writer(key)
    return Answered(answer.text, calls, answer.finish_reason, answer.usage, asked, writer)


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


async def listen(stage: Stage, state: AgentState, step: Listen) -> Interjected:
    transcript = stage.transcript
    assert transcript is not None, "an agent hears in a conversation"
    turn = f"agent/turn-{state.turns}"
    if not transcript.is_recorded(f"{turn}/heard"):
        if transcript.is_recorded(f"{turn}/model", "agent/end"):
            return Interjected()
        is_told = bool(state.turns) and stage.hooks.listens("turn_end")
        if not is_told and not (step.takes and await transcript.waiting()):
            return Interjected()  # nothing happened that a replay would have to know

    async def body() -> Interjected:
        await stage.tell_turn_end(state)
        said = await transcript.waiting() if step.takes else ()
        heard = [item for item in [await _taken(stage, item) for item in said] if item is not None]
        return Interjected(tuple(heard), tuple(item.id for item in said))

    return await stage.step(f"{turn}/heard", body, Interjected)


async def _taken(stage: Stage, item: Interjection) -> Interjection | None:
    """What extensions make of a message in the user's name (`input`); None when one handled it."""
    if item.sent is not None:
        return item
    answer = await stage.tell("input", text=item.text, source="extension", streamingBehavior="steer") or {}
    if answer.get("action") == "handled":
        return None
    if answer.get("action") == "transform" and isinstance(answer.get("text"), str):
        return msgspec.structs.replace(item, text=answer["text"])
    return item
