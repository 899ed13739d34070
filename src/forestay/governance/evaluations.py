"""`Evaluations`: evaluates an agent with a suite, as a run whose children are the tasks (OpenWOP RFC 0081 §B).

Invariants:

- E1  Each trial of a task is a child run. A restart continues from the log; a recorded score is final.
- E2  `eval.started` comes first, `eval.scored` once for each task in the suite's order, `eval.completed` last.
- E3  Events and summary have no content: a task's output stays in its child.
- E4  A task has only the tools and the memory of its fixtures; only live-shadow runs with the live ones.
- E5  An evaluation is of one version of an agent, which is fixed at the request.
- E6  A live-shadow score goes to the observer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from forestay.governance import scorecard
from forestay.governance.deployments import Score
from forestay.governance.eval_suite import MAX_TASKS, EvalMode, EvalSuite, Fixtures, Task, read_suite
from forestay.governance.evaluation_workflows import EVALUATION, TASK, TYPE
from forestay.governance.scorecard import TaskScore, Trial
from forestay.governance.scoring import Judge, Scorer, Used, scorer_of
from forestay.kernel import Draft, Ledger, Problem, parse_iso
from forestay.models import Usage
from forestay.runs import CreateRun, Execution, NodeType, RunCreated, Runs

MAX_TRIALS = 100
_WIDTH = 8  # children at a time
_MODES: tuple[EvalMode, ...] = ("golden", "rubric", "adversarial", "regression", "live-shadow")
Versions = Callable[[str, str, str | None], Awaitable[str]]
"""Returns the exact version of a tenant's agent for the named one; a Problem when there is none."""

Observer = Callable[[str, str, str, float], Awaitable[object]]
"""Called with the live-shadow score of a version of a tenant's agent."""


class Wanted(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One evaluation: the suite, the agent and the options."""

    suite_ref: str
    agent_id: str
    agent_version: str
    modes: tuple[EvalMode, ...]
    trials: int = 1
    baseline_run_id: str | None = None


class Evaluations:
    """The evaluations of one ledger. `task_workflow` makes an agent do a task: input `work`, output `output`."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        runs: Callable[[], Runs],
        versions: Versions,
        task_workflow: str = TASK["id"],
        judge: Judge | None = None,
        scorers: Mapping[str, Scorer] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._ledger = ledger
        self._runs = runs
        self._task_workflow = task_workflow
        self._judge = judge
        self._scorers = dict(scorers or {})
        self._versions = versions
        self._observer = observer

    @property
    def type(self) -> NodeType:
        return NodeType(type_id=TYPE, execute=self._execute, summary="Runs an evaluation suite against an agent.")

    @property
    def modes(self) -> tuple[EvalMode, ...]:
        """The modes that this host can run."""
        judged = ("rubric", "adversarial")
        return tuple(mode for mode in _MODES if self._judge is not None or mode not in judged)

    def capability(self) -> dict[str, Any]:
        """Return the capability for discovery."""
        return {"supported": True, "modes": list(self.modes), "maxTasksPerSuite": MAX_TASKS}

    async def put(self, tenant: str, document: Any) -> EvalSuite:
        """Store a suite; an existing version never changes."""
        suite = read_suite(document)
        self._check(suite, suite.modes)
        stream = _stream(tenant, suite.ref)
        try:
            await self._ledger.append(
                stream, [Draft("evaluation.suite", {"tenant": tenant, "suite": msgspec.to_builtins(suite)})], -1
            )
        except Problem as problem:
            if problem.key != "ledger_conflict":
                raise
            if await self.suite(tenant, suite.ref) != suite:
                message = f"{suite.ref} exists with other tasks: give the suite a new version."
                raise Problem("state_conflict", message, suite=suite.ref) from problem
        return suite

    async def suite(self, tenant: str, ref: str) -> EvalSuite:
        """Return a suite by `suiteId@version`; `not_found`."""
        records = await self._ledger.read(_stream(tenant, ref), 0, 1)
        if not records:
            raise Problem("not_found", f"There is no suite {ref[:200]}.", suite=ref[:200])
        return read_suite(records[0].payload["suite"])

    async def request(
        self,
        tenant: str,
        ref: str,
        agent_id: str,
        *,
        modes: tuple[EvalMode, ...] = (),
        trials: int = 1,
        baseline: str | None = None,
        version: str | None = None,
        principal: str | None = None,
        run_id: str | None = None,
    ) -> RunCreated:
        """Start an evaluation; a Problem when this host cannot run it as requested."""
        suite = await self.suite(tenant, ref)
        chosen = modes or tuple(mode for mode in suite.modes if mode in self.modes)
        if missing := [mode for mode in chosen if mode not in suite.modes]:
            raise Problem("schema_mismatch", f"The suite has no mode {missing[0]}.", at="$.configurable.evalModes")
        if not 1 <= trials <= MAX_TRIALS:
            message = f"An evaluation has 1 to {MAX_TRIALS} trials."
            raise Problem("out_of_range", message, at="$.configurable.evalTrials")
        if suite.target_agent_id not in (None, agent_id):
            raise Problem("schema_mismatch", f"The suite is for {suite.target_agent_id}.", at="$.agentId")
        self._check(suite, chosen)
        meant = await self._versions(tenant, agent_id, version)
        if "regression" in chosen:
            await self._baseline(tenant, baseline, suite)
        wanted = Wanted(ref, agent_id, meant, chosen, trials, baseline if "regression" in chosen else None)
        request = CreateRun(workflow_id=EVALUATION["id"], inputs={"wanted": msgspec.to_builtins(wanted)})
        return await self._runs().create_run(request, tenant, principal, run_id=run_id)

    async def summary(self, tenant: str, run_id: str) -> dict[str, Any]:
        """Return the EvalSummary of a run; `not_found` for any other run, `state_conflict` before its end."""
        shown = await self._runs().get_run(run_id, tenant)
        if shown.workflow_id != EVALUATION["id"]:
            raise Problem("not_found", "This run is not an evaluation.", runId=run_id)
        if shown.status != "completed" or shown.outputs is None:
            raise Problem("state_conflict", f"The evaluation is {shown.status}.", runStatus=shown.status)
        return dict(shown.outputs["summary"])

    async def score(self, tenant: str, run_id: str) -> Score | None:
        """Return the score for a deployment's gate; a fork has none, because it may change what was evaluated."""
        try:
            card = await self.summary(tenant, run_id)
            shown = await self._runs().get_run(run_id, tenant)
        except Problem as problem:
            if problem.key not in ("not_found", "state_conflict"):
                raise
            return None
        wanted = shown.inputs["wanted"]
        if shown.source_run_id is not None:
            return None
        return Score(wanted["agentId"], wanted["agentVersion"], card["passed"], card["aggregateScore"])

    def _check(self, suite: EvalSuite, modes: tuple[EvalMode, ...]) -> None:
        """Refuse modes and tasks that cannot be scored, before the first task runs (S3, E4)."""
        if missing := [mode for mode in modes if mode not in self.modes]:
            message = f"This host does not evaluate in the mode {missing[0]}."
            raise Problem("schema_mismatch", message, at="$.modes", supported=list(self.modes))
        for index, task in enumerate(suite.tasks):
            at = f"$.tasks[{index}]"
            if task.expected.match is not None:
                scorer_of(task.expected.match, self._scorers, f"{at}.expected.match")
            elif self._judge is None:
                raise Problem("capability_not_provided", "A rubric needs a judge.", requiredCapability="judge", at=at)

    async def _baseline(self, tenant: str, run_id: str | None, suite: EvalSuite) -> tuple[str, float]:
        """Return the baseline of a regression: a run of the same suite and version, and its score."""
        if run_id is None:
            message = "A regression needs a baselineRunId."
            raise Problem("schema_mismatch", message, at="$.configurable.baselineRunId")
        card = await self.summary(tenant, run_id)
        if (card["suiteId"], card["suiteVersion"]) != (suite.suite_id, suite.version):
            message = "The baseline is of another suite, or of another version."
            raise Problem("schema_mismatch", message, at="$.configurable.baselineRunId")
        return run_id, card["aggregateScore"]

    # The run

    async def _execute(self, ctx: Execution) -> dict[str, Any]:
        wanted = msgspec.convert(ctx.inputs["wanted"], Wanted)
        suite = await self.suite(ctx.tenant, wanted.suite_ref)
        begun: dict[str, Any] = {
            "suiteId": suite.suite_id,
            "suiteVersion": suite.version,
            "taskCount": len(suite.tasks),
            "modes": list(wanted.modes),
        }
        if wanted.baseline_run_id is not None:
            begun["baselineRunId"] = wanted.baseline_run_id
        ctx.emit("eval.started", begun)
        tasks = await self._tasks(ctx, wanted, suite)
        baseline = None
        if wanted.baseline_run_id is not None:
            baseline = await self._baseline(ctx.tenant, wanted.baseline_run_id, suite)
        card = scorecard.summary(suite, tasks, baseline)
        ctx.emit("eval.completed", scorecard.completed(card))
        ctx.artifact("forestay.eval.trials", [_trials(task) for task in tasks])
        if "live-shadow" in wanted.modes and self._observer is not None:  # E6
            await self._observer(ctx.tenant, wanted.agent_id, wanted.agent_version, card["aggregateScore"])
        return {"summary": card}

    async def _tasks(self, ctx: Execution, wanted: Wanted, suite: EvalSuite) -> list[TaskScore]:
        """Run every trial as a child, a few at a time; record tasks in order, each when its trials are done."""
        jobs = [(task, number) for task in suite.tasks for number in range(wanted.trials)]
        found: dict[tuple[str, int], Trial] = {}
        queue, under_way = iter(jobs), dict[tuple[str, int], tuple[Task, str]]()
        done: list[TaskScore] = []

        async def fill() -> None:
            for task, number in queue:
                key = f"task:{task.task_id}:{number}"
                if ctx.ended(key) is None:
                    inputs = self._inputs(wanted, task)
                    await ctx.start_child(self._task_workflow, inputs, key=key, cause="core.subWorkflow")
                under_way[task.task_id, number] = (task, key)
                if len(under_way) >= _WIDTH:
                    return

        await fill()
        while under_way:
            ended = [(place, *item) for place, item in under_way.items() if ctx.ended(item[1]) is not None]
            for place, task, key in ended:
                found[place] = await self._trial(ctx, wanted, task, key)
                del under_way[place]
            if not ended:
                await ctx.next_ended()
                continue
            while len(done) < len(suite.tasks):
                task_id = suite.tasks[len(done)].task_id
                trials = [found.get((task_id, number)) for number in range(wanted.trials)]
                if None in trials:
                    break
                made = TaskScore(task_id, tuple(trial for trial in trials if trial is not None))
                ctx.emit("eval.scored", scorecard.scored(made, suite.thresholds))
                done.append(made)
            await fill()
        return done

    def _inputs(self, wanted: Wanted, task: Task) -> dict[str, Any]:
        """Return a child's inputs; except in live-shadow, its tools and memory are those of the fixtures (E4)."""
        live = "live-shadow" in wanted.modes
        fixtures = None if live else msgspec.to_builtins(task.fixtures or Fixtures())
        who = {"agentId": wanted.agent_id, "agentVersion": wanted.agent_version}
        return {"work": {**who, "task": task.input, "fixtures": fixtures}}

    async def _trial(self, ctx: Execution, wanted: Wanted, task: Task, key: str) -> Trial:
        """Score a child's output, once (E1)."""
        ended = ctx.ended(key) or {}

        def used(model: str, usage: Usage) -> None:
            provider, _, name = model.partition(":")
            counted = {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens}
            said = {"provider": provider, "model": name or provider, **counted, "nodeId": ctx.node_id}
            ctx.emit("provider.usage", said)

        async def score() -> Any:
            shown = await self._runs().get_run(ended["runId"], ctx.tenant)
            output = (ended.get("outputs") or {}).get("output")
            failed = ended["status"] != "completed"
            value = 0.0 if failed else await self._score(task, output, used)
            findings = await self._judge.findings(output, used) if self._judges(wanted, failed) and self._judge else []
            cost = ((shown.metrics or {}).get("openwopCost") or {}).get("usd")
            took = parse_iso(shown.completed_at or "") - parse_iso(shown.created_at or "")
            return msgspec.to_builtins(Trial(0.0 if findings else value, max(0, took), cost or None, tuple(findings)))

        return msgspec.convert(await ctx.effect(f"score:{key}", score, provider="judge"), Trial)

    def _judges(self, wanted: Wanted, failed: bool) -> bool:
        return "adversarial" in wanted.modes and not failed

    async def _score(self, task: Task, output: Any, used: Used) -> float:
        if task.expected.match is not None:
            return scorer_of(task.expected.match, self._scorers, "$")(output)
        if self._judge is None or task.expected.rubric is None:
            raise Problem("capability_not_provided", "A rubric needs a judge.", requiredCapability="judge")
        return await self._judge.score(task.expected.rubric, output, used)


def _trials(task: TaskScore) -> dict[str, Any]:
    """Return the scores of each trial with their interval: numbers only."""
    low, high = task.interval or (None, None)
    scores = [trial.score for trial in task.trials]
    return {"taskId": task.task_id, "scores": scores, "mean": task.mean, "low": low, "high": high}


def _stream(tenant: str, ref: str) -> str:
    return "evaluation/" + hashlib.sha256(f"{tenant}\0{ref}".encode()).hexdigest()[:32]
