"""Performing the loop's steps: each is one durable effect, whose body also tells the extensions.

P1  What influenced the loop is inside the recorded value: the answer, the arguments after an extension changed them,
    the result after an extension replaced it. A replay asks nobody.
P2  Extensions hear of a step while it is performed. A step that is performed again after a crash tells them again;
    a recorded one does not.
P3  A `tool_call` listener that fails blocks the call (fails closed, Pi P10); any other is its own host's to record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, assert_never

import msgspec

from holdfast.agents import pi, structured
from holdfast.agents.arguments import fitted
from holdfast.agents.decide import AgentState
from holdfast.agents.events import Invocation
from holdfast.agents.manifest import AgentManifest
from holdfast.agents.ports import (
    ApprovalRequest,
    Approvals,
    EffectClass,
    Effects,
    Gate,
    Hooks,
    Memory,
    ModelCaller,
    Tool,
    ToolOutcome,
    ToolSource,
)
from holdfast.agents.steps import (
    Answered,
    Approved,
    AskApproval,
    Begin,
    Begun,
    CallModel,
    CallTool,
    Confirm,
    Confirmed,
    Correct,
    Corrected,
    Fail,
    Finish,
    GateCall,
    Gated,
    Record,
    RefuseCall,
    Returned,
    ReturnStatus,
    Step,
)
from holdfast.kernel import canonical
from holdfast.kernel.clock import Clock
from holdfast.kernel.problems import Problem
from holdfast.models import Message, Params, ToolCall, Usage
from holdfast.models.protocol import FinishReason

T = TypeVar("T")


class ModelFailed(Exception):
    """The model could not answer; the Problem says why. Nothing was recorded, so that trying again asks again."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Performer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an invocation touches."""

    manifest: AgentManifest
    invocation: Invocation
    model: ModelCaller
    tools: ToolSource
    effects: Effects
    hooks: Hooks
    gate: Gate
    approvals: Approvals
    memory: Memory | None
    clock: Clock

    async def perform(self, state: AgentState, step: Step) -> Record:
        """Do what `decide` said, and give back what happened."""
        match step:
            case Begin():
                return await self._begin()
            case CallModel():
                return await self._call_model(state)
            case GateCall(call):
                return await self._gate_call(state, call)
            case AskApproval(call):
                return await self._ask_approval(state, step)
            case CallTool():
                return await self._call_tool(state.place, step)
            case RefuseCall():
                return await self._refuse_call(state.place, step)
            case Correct(message):
                return Corrected(message)
            case Confirm():
                return await self._confirm(step)
            case Finish() | Fail():
                raise AssertionError("the loop ends before it performs its end")
            case _:
                assert_never(step)

    async def end(self, state: AgentState, step: Finish | Fail) -> None:
        """Tell the extensions, and keep the answer in mind where the agent has a memory."""

        async def body() -> None:
            if state.turns:
                await self._tell("turn_end", turnIndex=state.turns - 1, **_turn(state))
            spoken = [pi.to_pi(message) for message in state.messages if message.role != "system"]
            await self._tell("agent_end", messages=spoken)

        await self.effects.perform("agent/end", body, cls="read")
        if isinstance(step, Finish) and step.outcome == "completed":
            await self._remember(step.output)

    async def _begin(self) -> Begun:
        async def body() -> Begun:
            offered = await self.tools.tools()
            system = self.manifest.instructions
            if self.manifest.return_schema is not None:
                system += "\n\n" + structured.wanted(self.manifest.return_schema)
            prompt = task_text(self.invocation.task)
            answer = await self._tell("before_agent_start", prompt=prompt, systemPrompt=system) or {}
            if isinstance(answer.get("systemPrompt"), str):
                system = answer["systemPrompt"]
            added = pi.from_pi(answer["message"]) if "message" in answer else None
            await self._tell("agent_start")
            messages = [Message("system", system), *await self._recalled(prompt), Message("user", prompt)]
            return Begun((*messages, added) if added else tuple(messages), surface(self.manifest, offered))

        return await self._once("agent/begin", body, "read", Begun)

    async def _call_model(self, state: AgentState) -> Answered:
        async def body() -> Answered:
            if state.turns:
                await self._tell("turn_end", turnIndex=state.turns - 1, **_turn(state))
            await self._tell("turn_start", turnIndex=state.turns)
            for message in _since_last_answer(state):
                await self._tell_message(message)
            try:
                return await self._ask(state)
            except Problem as problem:
                raise ModelFailed(problem) from problem

        return await self._once(f"agent/turn-{state.turns}/model", body, "read", Answered)

    async def _gate_call(self, state: AgentState, call: ToolCall) -> Gated:
        async def body() -> Gated:
            await self._tell("tool_execution_start", toolCallId=call.id, toolName=call.name, args=call.arguments)
            tool = state.tool(call.name)
            if tool is None:
                return Gated("refuse", reason=f"There is no tool {call.name!r}.", status="error", absent=True)
            if call.malformed is not None:
                return Gated("refuse", reason="The arguments are not a JSON object.", status="error")
            try:
                arguments = fitted(tool, call.arguments)
                answer = await self._tell("tool_call", toolName=call.name, toolCallId=call.id, input=arguments)
                if answer and answer.get("block"):
                    reason = str(answer.get("reason") or "An extension blocked this call.")
                    return Gated("refuse", arguments, reason, "forbidden")
                if answer and isinstance(answer.get("input"), dict):
                    arguments = fitted(tool, answer["input"])
            except Problem as problem:
                status: ReturnStatus = "error" if problem.key == "schema_mismatch" else "forbidden"
                return Gated("refuse", reason=problem.message, status=status)
            return await self._verdict(tool, arguments)

        return await self._once(f"agent/{state.place}/gate", body, "read", Gated)

    async def _ask_approval(self, state: AgentState, step: AskApproval) -> Approved:
        tool = state.tool(step.call.name)
        assert tool is not None, "decide asks only for tools that are there"
        request = ApprovalRequest(
            "approval",
            f"May the agent call {step.call.name}?",
            step.reason,
            tool=step.call.name,
            arguments=step.arguments,
            known={"agentId": self.manifest.agent_id, "effect": tool.effect},
            actions=("accept", "reject", "edit-accept"),
        )
        answer = await self.approvals.ask(f"agent/{state.place}/approval", request)
        if answer.action != "edit-accept":
            return Approved(answer.action, note=answer.note)
        try:
            return Approved("edit-accept", fitted(tool, answer.arguments or {}), answer.note)
        except Problem as problem:
            return Approved("reject", note=f"The edited arguments do not fit: {problem.message}")

    async def _call_tool(self, place: str, step: CallTool) -> Returned:
        """The tool's effect, then what the extensions make of its result."""
        key = f"agent/{place}/call"
        identity = f"{self.invocation.id}/{key}" if step.tool.effect == "write" and step.tool.takes_key else None

        async def body() -> _Called:
            began = self.clock.monotonic()

            async def update(partial: Any) -> None:
                await self._tell(
                    "tool_execution_update",
                    toolCallId=step.call.id,
                    toolName=step.call.name,
                    args=step.arguments,
                    partialResult=partial,
                )

            try:
                outcome = await self.tools.call(
                    step.tool, step.arguments, call_id=step.call.id, idempotency_key=identity, update=update
                )
            except Problem as problem:
                outcome = ToolOutcome(problem.message, is_error=True, details=problem.as_lafs())
            return _Called(outcome, round((self.clock.monotonic() - began) * 1000))

        called = await self._once_or_ask(key, body, step, identity)
        return await self._settled(place, step.call, step.arguments, called.outcome, called.duration_ms)

    async def _refuse_call(self, place: str, step: RefuseCall) -> Returned:
        async def body() -> Returned:
            await self._tell_end(step.call, step.reason, is_error=True)
            return Returned(step.reason, step.status)

        return await self._once(f"agent/{place}/result", body, "read", Returned)

    async def _confirm(self, step: Confirm) -> Confirmed:
        request = ApprovalRequest(
            "low-confidence",
            "The agent is not sure of its answer. Is it good enough?",
            f"Its confidence is {step.confidence:g}; {step.threshold:g} was asked for.",
            known={"confidence": step.confidence, "threshold": step.threshold, "answer": step.output},
        )
        answer = await self.approvals.ask("agent/confidence", request)
        return Confirmed(answer.action != "reject")

    async def _ask(self, state: AgentState) -> Answered:
        """One model call, told as it streams."""
        messages, params = await self._prepared(state)
        texts: list[str] = []
        calls: list[ToolCall] = []
        finish: FinishReason | None = None
        usage: Usage | None = None
        await self._tell("message_start", message=pi.to_pi(Message("assistant", "")))
        stream = self.model.stream(messages, tools=[tool.spec for tool in state.surface], params=params)
        try:
            async for delta in stream:
                texts.append(delta.text)
                calls.extend(delta.tool_calls)
                finish, usage = delta.finish_reason or finish, delta.usage or usage
                if delta.text and self.hooks.listens("message_update"):
                    partial = pi.to_pi(Message("assistant", "".join(texts)))
                    change = {"type": "text_delta", "delta": delta.text}
                    await self._tell("message_update", message=partial, assistantMessageEvent=change)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if finish is None:
            raise Problem("provider_error", "The model's answer broke off before its end.")
        answer = Answered("".join(texts), _distinct(calls), finish, usage)
        await self._tell("message_end", message=pi.to_pi(Message("assistant", answer.text, answer.tool_calls)))
        return answer

    async def _prepared(self, state: AgentState) -> tuple[list[Message], Params]:
        """The messages and parameters after the extensions had their say (`context`, `before_provider_request`)."""
        system = [message for message in state.messages if message.role == "system"]
        spoken = [message for message in state.messages if message.role != "system"]
        answer = await self._tell("context", messages=[pi.to_pi(message) for message in spoken])
        messages = system + _replaced(spoken, answer)
        params = Params(max_tokens=self.manifest.max_tokens, temperature=self.manifest.temperature)
        payload = {
            "model": self.model.name,
            "messages": [pi.to_pi(message) for message in messages],
            "tools": [msgspec.to_builtins(tool.spec) for tool in state.surface],
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
        }
        answer = await self._tell("before_provider_request", payload=payload)
        if answer is None:
            return messages, params
        changed = answer.get("payload", answer)
        if not isinstance(changed, dict):
            return messages, params
        tokens, warmth = changed.get("max_tokens", params.max_tokens), changed.get("temperature", params.temperature)
        params = Params(
            max_tokens=tokens if isinstance(tokens, int) else params.max_tokens,
            temperature=warmth if isinstance(warmth, int | float) else params.temperature,
        )
        return _replaced(messages, changed), params

    async def _verdict(self, tool: Tool, arguments: dict[str, Any]) -> Gated:
        verdict = await self.gate.decide(tool, arguments)
        if verdict.effect == "deny":
            return Gated("refuse", arguments, verdict.reason or "Policy denies this call.", "forbidden")
        return Gated("prompt" if verdict.effect == "prompt" else "run", arguments, verdict.reason)

    async def _once_or_ask(
        self, key: str, body: Callable[[], Awaitable[_Called]], step: CallTool, identity: str | None
    ) -> _Called:
        """The effect once. When nobody knows whether it was done, a person says what to do (never guessed)."""
        attempt = key
        while True:
            try:
                return await self._once(attempt, body, step.tool.effect, _Called, identity)
            except Problem as problem:
                if problem.key != "effect_uncertain":
                    raise
                request = ApprovalRequest(
                    "uncertain-effect",
                    f"Was {step.call.name} done? The process died while it ran.",
                    "Accept to run it again; reject to go on without, and say in the note what you found.",
                    tool=step.call.name,
                    arguments=step.arguments,
                    known={"callId": step.call.id, "effect": step.tool.effect, **problem.details},
                )
                answer = await self.approvals.ask(f"{attempt}/uncertain", request)
                if answer.action == "reject":
                    text = answer.note or "It is not known whether this was done. It was not run again."
                    return _Called(ToolOutcome(text, is_error=True), None)
                attempt += "/again"

    async def _settled(
        self, place: str, call: ToolCall, arguments: dict[str, Any], outcome: ToolOutcome, duration: int | None
    ) -> Returned:
        async def body() -> Returned:
            answer = await self._tell(
                "tool_result",
                toolName=call.name,
                toolCallId=call.id,
                input=arguments,
                content=pi.blocks_of(outcome.content),
                details=outcome.details,
                isError=outcome.is_error,
            )
            text, failed = outcome.content, outcome.is_error
            if answer is not None:
                text = pi.text_of(answer["content"]) if "content" in answer else text
                failed = bool(answer.get("isError", failed))
            await self._tell_end(call, text, is_error=failed)
            return Returned(text, "error" if failed else "ok", duration)

        return await self._once(f"agent/{place}/result", body, "read", Returned)

    async def _recalled(self, prompt: str) -> list[Message]:
        if self.memory is None or not self.manifest.memory.long_term:
            return []
        entries = await self.memory.recall(self.manifest.agent_id, prompt)
        lines = "\n".join(f"- {entry}" for entry in entries)
        return [Message("user", f"What you remember from earlier work:\n{lines}")] if entries else []

    async def _remember(self, output: Any) -> None:
        memory = self.memory
        if memory is None or not self.manifest.memory.long_term:
            return
        key = "agent/remember"
        identity = f"{self.invocation.id}/{key}"

        async def body() -> None:
            await memory.remember(self.manifest.agent_id, task_text(output), idempotency_key=identity)

        await self.effects.perform(key, body, cls="write", idempotency_key=identity)

    async def _once(
        self, key: str, body: Callable[[], Awaitable[T]], cls: EffectClass, type: type[T], identity: str | None = None
    ) -> T:
        """The recorded value of `key`, typed; JSON in the record."""

        async def plain() -> Any:
            return msgspec.to_builtins(await body())

        return msgspec.convert(await self.effects.perform(key, plain, cls=cls, idempotency_key=identity), type)

    async def _tell(self, event: str, **payload: Any) -> dict[str, Any] | None:
        return await self.hooks.emit({"type": event, **payload}) if self.hooks.listens(event) else None

    async def _tell_message(self, message: Message) -> None:
        await self._tell("message_start", message=pi.to_pi(message))
        await self._tell("message_end", message=pi.to_pi(message))

    async def _tell_end(self, call: ToolCall, text: str, *, is_error: bool) -> None:
        result = {"content": pi.blocks_of(text)}
        await self._tell("tool_execution_end", toolCallId=call.id, toolName=call.name, result=result, isError=is_error)
        await self._tell_message(Message("tool", text, tool_call_id=call.id))


class _Called(msgspec.Struct, frozen=True):
    outcome: ToolOutcome
    duration_ms: int | None


def surface(manifest: AgentManifest, offered: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools that the allowlist leaves; of two with one name the first stays (A3)."""
    kept: dict[str, Tool] = {}
    for tool in offered:
        if manifest.allows(tool.id or tool.name, tool.name):
            kept.setdefault(tool.name, tool)
    return tuple(kept.values())


def task_text(task: Any) -> str:
    return task if isinstance(task, str) else canonical.encode(task).decode()


def _turn(state: AgentState) -> dict[str, Any]:
    """`message` and `toolResults` of the turn that the conversation ends with."""
    at = max(index for index, message in enumerate(state.messages) if message.role == "assistant")
    results = [pi.to_pi(message) for message in state.messages[at + 1 :] if message.role == "tool"]
    return {"message": pi.to_pi(state.messages[at]), "toolResults": results}


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
