"""The test seam of evaluations under `/v1/host/sample/`: evaluates an agent with simple tasks (OpenWOP RFC 0081)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from forestay.agents import ASSISTANT
from forestay.governance import EvalMode
from forestay.host import Host
from forestay.surface.operations import Body, Call, Operations, View

api = Operations[Host](tag="seams", scopes=("runs:create",))
_PASSES = {"kind": "golden", "match": {"strategy": "regex", "value": ".*"}}
_FAILS = {"kind": "golden", "match": {"strategy": "exact", "value": "an answer that nobody gives"}}


class EvalScenario(Body, frozen=True):
    agent_id: Annotated[str, Meta(min_length=3, max_length=128)] = ASSISTANT
    modes: list[EvalMode] = field(default_factory=lambda: ["golden"])
    task_count: Annotated[int, Meta(ge=1, le=20)] = 2


class EvalRun(View, frozen=True):
    run_id: str
    status: str


@api.post("/v1/host/sample/agents/eval-run", "seams.evaluation", EvalRun, problems=("schema_mismatch", "not_found"))
async def evaluate(host: Host, call: Call, body: EvalScenario) -> EvalRun:
    """Evaluate an agent with so many tasks; every second one cannot be passed."""
    suite: dict[str, Any] = {
        "suiteId": f"forestay.evals.sample-{body.task_count}-{'-'.join(body.modes)}",
        "version": "1.0.0",
        "modes": list(body.modes),
        "tasks": [
            {"taskId": f"task-{number}", "input": "Say hello.", "expected": _FAILS if number % 2 else _PASSES}
            for number in range(body.task_count)
        ],
    }
    kept = await host.evaluations.put(call.tenant, suite)
    made = await host.evaluations.request(
        call.tenant, kept.ref, body.agent_id, modes=tuple(body.modes), principal=call.caller.principal
    )
    ended = await host.runs.wait(made.run_id, call.tenant)
    return EvalRun(run_id=ended.run_id, status=ended.status)
