"""An agent: decides, performs what it decided, records and says what happened. After a crash it replays its records."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, assert_never

import msgspec

from forestay.agents import pi, structured
from forestay.agents.decide import CALLER, AgentState, decide, evolve
from forestay.agents.events import AgentEvent, Invocation, Narrator, Verbosity
from forestay.agents.manifest import AgentManifest
from forestay.agents.ports import AgentModel, Hooks, Kept, Memory, Quiet, Transcript
from forestay.agents.prompt_chain import prompt_text
from forestay.agents.stage import (
    ModelFailed,
    Stage,
    ask_approval,
    call_model,
    call_tool,
    gate_call,
    listen,
    refuse_call,
)
from forestay.agents.steps import (
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
    Interjected,
    Listen,
    Outcome,
    Record,
    RefuseCall,
    Step,
)
from forestay.kernel import Clock, Problem, SystemClock, canonical, mistakes
from forestay.models import Message, ToolCall, Usage
from forestay.tools import ApprovalRequest, Approvals, Effects, Gate, Tool, ToolSource


class AgentResult(msgspec.Struct, frozen=True):
    """How an invocation ended; `output` is the answer, `problem` why there is none."""

    outcome: Outcome
    output: Any = None
    problem: Problem | None = None
    validated: bool | None = None
    confidence: float | None = None
    turns: int = 0
    usage: Usage = Usage(0, 0)
    calls: tuple[ToolCall, ...] = ()
    """What the caller is to do with tools of its own, before it asks again."""


class Agent:
    """An agent and everything it works with."""

    def __init__(
        self,
        manifest: AgentManifest,
        *,
        model: AgentModel,
        tools: ToolSource,
        effects: Effects,
        gate: Gate,
        approvals: Approvals,
        hooks: Hooks | None = None,
        memory: Memory | None = None,
        transcript: Transcript | None = None,
        clock: Clock | None = None,
        verbosity: Verbosity = "off",
    ) -> None:
        self._manifest = manifest
        self._model = model
        self._tools = tools
        self._effects = effects
        self._gate = gate
        self._approvals = approvals
        self._hooks = hooks or Quiet()
        self._memory = memory
        self._transcript = transcript
        self._clock = clock or SystemClock()
        self._verbosity: Verbosity = verbosity

    def _stage(self, invocation: Invocation) -> Stage:
        return Stage(
            manifest=self._manifest,
            invocation=invocation,
            model=self._model,
            tools=self._tools,
            effects=self._effects,
            hooks=self._hooks,
            gate=self._gate,
            approvals=self._approvals,
            memory=self._memory,
            clock=self._clock,
            transcript=self._transcript,
        )

    async def invoke(self, invocation: Invocation) -> AsyncGenerator[AgentEvent | AgentResult, None]:
        """The events of the invocation, to be appended in order, and last its AgentResult.

        Invoked again with the same Invocation and Effects, it yields the same events and does nothing twice.
        """
        narrator = Narrator(invocation, self._manifest, self._model.name, self._verbosity)
        stage = self._stage(invocation)
        yield narrator.started()
        refused = self._refused_task(invocation)
        if refused is not None:
            yield narrator.completed("failed", None, None)
            yield AgentResult("failed", problem=refused)
            return
        state = AgentState(self._manifest, hears=stage.transcript is not None and stage.transcript.hears)
        try:
            while True:
                step = decide(state)
                if isinstance(step, Confirm) or (isinstance(step, Finish) and state.confirmed is None):
                    yield narrator.decided(step)
                if isinstance(step, Finish | Fail):
                    break
                record = await perform(stage, state, step)
                for event in narrator.told(state, step, record):
                    yield event
                await self._keep(stage, state, record)
                state = evolve(state, record)
        except ModelFailed as failure:
            # Not an effect: nothing of this turn is on record, and the next life may get an answer.
            await tell_end(stage, state, failure.problem.key)
            await self._keep_failure(stage, state, failure.problem)
            for event in narrator.closed("failed"):
                yield event
            yield narrator.completed("failed", None, None)
            yield AgentResult("failed", problem=failure.problem, turns=state.turns, usage=state.usage)
            return
        kept = await end(stage, state, step)
        if kept is not None:
            yield narrator.remembered(kept)
        result = _result(state, step)
        if result.problem is not None:
            await self._keep_failure(stage, state, result.problem)
        for event in narrator.closed(result.outcome):
            yield event
        yield narrator.completed(result.outcome, result.validated, result.confidence)
        yield result

    async def _keep(self, stage: Stage, state: AgentState, record: Record) -> None:
        """Put what happened into the conversation, where the invocation goes on with one."""
        if stage.transcript is None:
            return
        made = pi.entries_of(state, record, self._model.name, self._clock.now_ms())
        entries = [(f"{stage.invocation.id}/{place}", entry) for place, entry in made]
        if isinstance(record, Interjected):
            await stage.transcript.hear(entries, record.met)
        else:
            for place, entry in entries:
                await stage.transcript.take(place, entry)

    async def _keep_failure(self, stage: Stage, state: AgentState, problem: Problem) -> None:
        if stage.transcript is not None:
            place, entry = pi.failed_entry(state, problem, self._model.name, self._clock.now_ms())
            await stage.transcript.take(f"{stage.invocation.id}/{place}", entry)

    def _refused_task(self, invocation: Invocation) -> Problem | None:
        schema = self._manifest.task_schema
        found = [] if schema is None else mistakes(schema, invocation.task)
        if not found:
            return None
        return Problem(
            "agent_input_invalid",
            f"The task does not fit the agent's task schema at {found[0].at}: {found[0].message}",
            at=found[0].at,
            errors=[{"at": mistake.at, "message": mistake.message} for mistake in found],
        )


def _result(state: AgentState, step: Finish | Fail) -> AgentResult:
    if isinstance(step, Fail):
        problem = Problem(step.key, step.message, **step.details)
        return AgentResult(
            step.outcome, problem=problem, validated=step.validated, turns=state.turns, usage=state.usage
        )
    return AgentResult(
        step.outcome,
        step.output,
        None,
        step.validated,
        step.confidence,
        turns=state.turns,
        usage=state.usage,
        calls=step.calls,
    )


async def perform(stage: Stage, state: AgentState, step: Step) -> Record:
    """Do what `decide` said, and give back what happened."""
    match step:
        case Begin():
            return await _begin(stage)
        case CallModel():
            return await call_model(stage, state)
        case GateCall(call):
            return await gate_call(stage, state, call)
        case AskApproval():
            return await ask_approval(stage, state, step)
        case CallTool():
            return await call_tool(stage, state.place, step)
        case RefuseCall():
            return await refuse_call(stage, state.place, step)
        case Listen():
            return await listen(stage, state, step)
        case Correct(message):
            return Corrected(message)
        case Confirm():
            return await _confirm(stage, step)
        case Finish() | Fail():
            raise AssertionError("the loop ends before it performs its end")
        case _:
            assert_never(step)


async def end(stage: Stage, state: AgentState, step: Finish | Fail) -> Kept | None:
    """Tell the extensions, and keep the answer in mind where the agent has a memory; where it is kept."""
    if state.handled:  # nothing had begun
        return None
    error = step.key if isinstance(step, Fail) else None

    async def body() -> None:
        await tell_end(stage, state, error)

    await stage.effects.perform("agent/end", body, cls="read", later=True)
    if isinstance(step, Finish) and step.outcome == "completed":
        return await _remember(stage, step.output)
    return None


async def tell_end(stage: Stage, state: AgentState, error: str | None) -> None:
    if not state.hears:  # else it was told when the agent listened
        await stage.tell_turn_end(state)
    spoken = [pi.to_pi(message) for message in pi.since_history(state)]
    await stage.tell("agent_end", messages=spoken, error=error)


async def _begin(stage: Stage) -> Begun:
    transcript = stage.transcript

    async def body() -> Begun:
        leaf = transcript.leaf() if transcript is not None else None
        offered = await stage.tools.list()
        system, prompt = _spoken(stage)
        answer = await stage.tell("input", text=prompt, source=_source(stage)) or {} if prompt else {}
        if answer.get("action") == "handled":
            return Begun((Message("user", prompt, task=True),), (), handled=True)
        if answer.get("action") == "transform" and isinstance(answer.get("text"), str):
            prompt = answer["text"]
        answer = await stage.tell("before_agent_start", prompt=prompt, systemPrompt=system) or {}
        if isinstance(answer.get("systemPrompt"), str):
            system = answer["systemPrompt"]
        added = pi.from_pi(answer["message"]) if "message" in answer else None
        await stage.tell("agent_start")
        messages = [Message("system", system)]
        messages += [Message("user", prompt, task=True)] if prompt or leaf is None else []
        messages += [added] if added is not None else []
        kept = tuple(item for item in answer.get("messages") or () if isinstance(item, dict))
        recalled = await _recalled(stage, prompt)
        return Begun(tuple(messages), surface(stage.manifest, offered), history=leaf, added=kept, recalled=recalled)

    begun = await stage.step("agent/begin", body, Begun)
    first, rest = begun.messages[:1], (*await _remembered(stage, begun.recalled), *begun.messages[1:])
    if transcript is None or begun.history is None:
        return msgspec.structs.replace(begun, messages=(*first, *rest))
    history = transcript.history(begun.history)
    messages = (*first, *(history if rest else _asked(history)), *rest)
    return msgspec.structs.replace(begun, messages=messages, known=len(history))


def _spoken(stage: Stage) -> tuple[str, str]:
    """What the model is told before anything else, and the task, each by the prompts that apply (RFC 0029)."""
    manifest, prompts = stage.manifest, stage.invocation.prompts
    wanted = "" if manifest.return_schema is None else structured.wanted(manifest.return_schema)
    if not prompts:
        return "\n\n".join(filter(None, (manifest.instructions, wanted))), _text(stage.invocation.task)
    system = [prompt_text(prompts, "system") or manifest.instructions, prompt_text(prompts, "schema-hint"), wanted]
    task = [prompt_text(prompts, "few-shot"), prompt_text(prompts, "user") or _text(stage.invocation.task)]
    return "\n\n".join(filter(None, system)), "\n\n".join(filter(None, task))


def _source(stage: Stage) -> str:
    return stage.transcript.source if stage.transcript is not None else "rpc"


def _asked(history: Sequence[Message]) -> list[Message]:
    """A conversation that goes on without a new message: what was said last in the user's name is the task."""
    at = max((at for at, message in enumerate(history) if message.role == "user"), default=-1)
    return [msgspec.structs.replace(item, task=True) if n == at else item for n, item in enumerate(history)]


def surface(manifest: AgentManifest, offered: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools that the allowlist leaves, and the caller's own; of two with one name the first stays (A3, A6)."""
    allowed = manifest.allowed({name for tool in offered for name in (tool.id or tool.name, tool.name)})
    kept: dict[str, Tool] = {}
    for tool in offered:
        if not allowed.isdisjoint((tool.id or tool.name, tool.name)) or tool.source == CALLER:
            kept.setdefault(tool.name, tool)
    return tuple(kept.values())


async def _confirm(stage: Stage, step: Confirm) -> Confirmed:
    request = ApprovalRequest(
        "low-confidence",
        "The agent is not sure of its answer. Is it good enough?",
        f"Its confidence is {step.confidence:g}; {step.threshold:g} was asked for.",
        known={"confidence": step.confidence, "threshold": step.threshold, "answer": step.output},
    )
    answer = await stage.approvals.ask("agent/confidence", request)
    return Confirmed(answer.action != "reject")


async def _recalled(stage: Stage, prompt: str) -> tuple[str, ...]:
    if stage.memory is None or not stage.manifest.memory.long_term:
        return ()
    return tuple(await stage.memory.recall(stage.manifest.agent_id, prompt))


async def _remembered(stage: Stage, ids: Sequence[str]) -> list[Message]:
    """What the agent recalled when it began, as far as it is not forgotten."""
    entries = await stage.memory.read(ids) if stage.memory is not None and ids else ()
    lines = "\n".join(f"- {entry}" for entry in entries)
    return [Message("user", f"What you remember from earlier work:\n{lines}")] if entries else []


async def _remember(stage: Stage, output: Any) -> Kept | None:
    memory = stage.memory
    if memory is None or not stage.manifest.memory.long_term:
        return None
    key = "agent/remember"
    identity = f"{stage.invocation.id}/{key}"

    # The task is kept with its answer: an answer alone ("7") shares no word with the task that will ask for it.
    entry = f"{_text(stage.invocation.task)}\n{_text(output)}"

    async def body() -> Any:
        return msgspec.to_builtins(await memory.remember(stage.manifest.agent_id, entry, idempotency_key=identity))

    kept = await stage.effects.perform(key, body, cls="write", idempotency_key=identity, later=True)
    return None if kept is None else msgspec.convert(kept, Kept)


def _text(task: Any) -> str:
    return task if isinstance(task, str) else canonical.encode(task).decode()
