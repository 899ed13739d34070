"""An agent: decides, performs, records and says what happened. After a crash it replays its records."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from forestay.agents.asking import ModelFailed
from forestay.agents.decide import AgentState, decide, evolve
from forestay.agents.events import AgentEvent, Invocation, Narrator, Verbosity
from forestay.agents.manifest import AgentManifest
from forestay.agents.performer import end, perform, tell_end
from forestay.agents.ports import AgentModel, Hooks, Memory, Quiet, Transcript
from forestay.agents.stage import Stage
from forestay.agents.steps import Confirm, Fail, Finish, Interjected, Outcome, Record
from forestay.agents.transcript import entries_of, failed_entry
from forestay.kernel import Clock, Problem, SystemClock, mistakes
from forestay.models import ToolCall, Usage
from forestay.tools import Approvals, Effects, Gate, ToolSource


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
        made = entries_of(state, record, self._model.name, self._clock.now_ms())
        entries = [(f"{stage.invocation.id}/{place}", entry) for place, entry in made]
        if isinstance(record, Interjected):
            await stage.transcript.hear(entries, record.met)
        else:
            for place, entry in entries:
                await stage.transcript.take(place, entry)

    async def _keep_failure(self, stage: Stage, state: AgentState, problem: Problem) -> None:
        if stage.transcript is not None:
            place, entry = failed_entry(state, problem, self._model.name, self._clock.now_ms())
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
