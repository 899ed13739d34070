"""Evaluations of agents (OpenWOP RFC 0081): a run with `mode: eval`, and its scorecard."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from forestay.governance import EvalMode
from forestay.host import Host
from forestay.kernel import Problem, canonical
from forestay.runs import CreateRun, RunCreated
from forestay.surface.operations import Call, Operations

api = Operations[Host](scopes=("runs:read",), tag="evaluations")


class EvalOptions(msgspec.Struct, frozen=True, rename="camel"):
    """The keys of `configurable` that concern an evaluation; other keys are ignored."""

    eval_modes: tuple[EvalMode, ...] = ()
    eval_trials: Annotated[int, msgspec.Meta(ge=1)] = 1
    agent_version: str | None = None
    baseline_run_id: str | None = None


@api.get("/v1/runs/{runId}/eval-summary", "evaluations.summary", dict[str, Any], problems=("state_conflict",))
async def summary(host: Host, call: Call) -> dict[str, Any]:
    """The scorecard of an evaluation that has ended: numbers and ids, no content."""
    return await host.evaluations.summary(call.tenant, call.path["runId"])


async def begin(host: Host, call: Call, body: CreateRun) -> RunCreated:
    """Start the evaluation of a request with `mode: eval`."""
    if not body.eval_suite_ref or not body.agent_id:
        missing = "evalSuiteRef" if not body.eval_suite_ref else "agentId"
        raise Problem("schema_mismatch", f"An evaluation needs `{missing}`.", at=f"$.{missing}")
    if body.tenant_id not in (None, call.tenant):
        raise Problem("permission_denied", "The key belongs to another tenant.", at="$.tenantId")
    try:
        options = msgspec.convert(body.configurable, EvalOptions)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "$.configurable")
        raise Problem("schema_mismatch", f"{message}.", at=where) from error
    return await host.evaluations.request(
        call.tenant,
        body.eval_suite_ref,
        body.agent_id,
        modes=options.eval_modes,
        trials=options.eval_trials,
        baseline=options.baseline_run_id,
        version=options.agent_version,
        principal=call.caller.principal,
        run_id=call.id_for("run"),
    )
