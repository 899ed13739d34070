"""Operations on runs (OpenWOP §1.1, W4)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, convert, field, structs
from starlette.responses import Response

from forestay.host import Host, Rooted
from forestay.kernel import Problem, read_traceparent
from forestay.runs import (
    MAX_NAME,
    Ancestry,
    Artifact,
    BulkResult,
    DrainPolicy,
    RunCreated,
    RunDiff,
    RunFilter,
    RunForked,
    RunPage,
    RunSnapshot,
    RunStanding,
    RunStatus,
)
from forestay.surface.openwop import evaluations
from forestay.surface.openwop.bodies import NewFork, NewRun
from forestay.surface.operations import Body, Call, Operations, Query, Result, View

_RUN = "/v1/runs/{runId}"
_CHANGE = ("state_conflict",)
Text = Annotated[str, Meta(max_length=4096)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Moment = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})]

api = Operations[Host](scopes=("runs:read",))


class ListQuery(Query, frozen=True):
    status: list[RunStatus] = field(default_factory=list)
    workflow_id: Name | None = None
    tag: Name | None = None
    scope_id: Name | None = None
    parent_run_id: Name | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    cursor: Annotated[str, Meta(max_length=1024)] | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class DiffQuery(Query, frozen=True):
    against: Name


class ExpressionQuery(Query, frozen=True):
    expression: Annotated[str, Meta(min_length=1, max_length=4096)]


class Reason(Body, frozen=True):
    reason: Text | None = None


class Pause(Body, frozen=True):
    reason: Text | None = None
    drain_policy: DrainPolicy = "drain-current-node"


class BulkCancel(Body, frozen=True):
    run_ids: Annotated[list[str], Meta(extra_json_schema={"minItems": 1, "maxItems": 100})]
    reason: Text | None = None


class BulkCancelled(Result, frozen=True):
    results: list[BulkResult]


class Signal(Body, frozen=True):
    payload: Any = None


class Value(View, frozen=True):
    value: Any


class Artifacts(View, frozen=True):
    artifacts: list[Artifact]


@api.post(
    "/v1/runs",
    "runs.create",
    {201: RunCreated},
    scopes=("runs:create",),
    headers=("X-Dedup", "X-Force-Engine-Version", "traceparent"),
    problems=(
        "not_found",
        "run_already_active",
        "capability_not_provided",
        "force_engine_version_forbidden",
        "version_out_of_range",
        "mock_provider_forbidden",
        "webhook_url_rejected",
    ),
)
async def create(host: Host, call: Call, body: NewRun) -> Response:
    """Start a run; it is on disk when the answer is sent."""
    caller, headers = call.caller, call.request.headers
    if body.mode not in (None, "eval"):
        raise Problem("schema_mismatch", f"There is no mode {body.mode[:40]!r}.", at="$.mode", known=["eval"])
    if body.mode is None and body.eval_suite_ref is not None:
        raise Problem("schema_mismatch", "`evalSuiteRef` goes with the mode `eval`.", at="$.evalSuiteRef")
    if body.callback_url is not None:
        host.webhooks.check_callback(body.callback_url)
    trace = read_traceparent(headers.get("traceparent"))
    if trace is not None:
        body = structs.replace(body, metadata={**body.metadata, "traceparent": trace})
    reserved = call.id_for("run")
    try:
        if body.mode == "eval":
            made = await evaluations.begin(host, call, body)
        else:
            root = Rooted(body, []) if body.agent_id is None else await host.roots.of(body, caller.tenant)
            made = await host.runs.create_run(
                root.request,
                caller.tenant,
                caller.principal,
                workspace=caller.workspace,
                dedup=headers.get("x-dedup", "").strip().lower() == "enforce",
                engine_version=headers.get("x-force-engine-version"),
                run_id=reserved,
                trusted=caller.test,
                facts=root.facts,
            )
    except Problem as problem:
        if reserved is None or problem.details.get("activeRunId") != reserved:
            raise
        # This very request created it before the host died: the answer is the one that was lost (K4).
        snapshot = await host.runs.get_run(reserved, caller.tenant)
        made = RunCreated(
            run_id=reserved,
            status=snapshot.status,
            events_url=f"/v1/runs/{reserved}/events",
            status_url=f"/v1/runs/{reserved}",
        )
    return call.answer(made, 201, {"Location": f"/v1/runs/{made.run_id}"})


@api.get("/v1/runs", "runs.list", RunPage)
async def list_runs(host: Host, call: Call, query: ListQuery) -> RunPage:
    """Runs of the caller's tenant, newest first."""
    filters = convert(query, RunFilter, from_attributes=True)
    return await host.runs.list_runs(filters, call.tenant, query.cursor, query.limit)


@api.get(_RUN, "runs.get", RunSnapshot)
async def get(host: Host, call: Call) -> RunSnapshot:
    """Where a run stands."""
    return await host.runs.get_run(call.path["runId"], call.tenant)


@api.post(f"{_RUN}/cancel", "runs.cancel", RunStanding, scopes=("runs:cancel",), problems=_CHANGE)
async def cancel(host: Host, call: Call, body: Reason | None) -> RunStanding:
    """Cancel a run and its children."""
    reason = body.reason if body else None
    return await host.runs.cancel(call.path["runId"], call.tenant, call.caller.principal, reason)


@api.post("/v1/runs:bulk-cancel", "runs.bulk-cancel", BulkCancelled, scopes=("runs:cancel",))
async def bulk_cancel(host: Host, call: Call, body: BulkCancel) -> BulkCancelled:
    """Cancel up to 100 runs; one result per id, in the order asked."""
    caller = call.caller
    return BulkCancelled(
        results=await host.runs.bulk_cancel(body.run_ids, caller.tenant, caller.principal, body.reason)
    )


@api.post(
    f"{_RUN}:fork",
    "runs.fork",
    {201: RunForked},
    scopes=("runs:create", "runs:read"),
    problems=(*_CHANGE, "mock_provider_forbidden", "replay_out_of_range", "replay_diverged_at_refusal"),
)
async def fork(host: Host, call: Call, body: NewFork) -> Response:
    """Replay a run, or branch off it, from any sequence."""
    made = await host.runs.fork(
        call.path["runId"], call.tenant, body, trusted=call.caller.test, fork_id=call.id_for("run")
    )
    return call.answer(made, 201, {"Location": f"/v1/runs/{made.run_id}"})


@api.post(f"{_RUN}:pause", "runs.pause", {202: RunStanding}, scopes=("runs:cancel",), problems=_CHANGE)
async def pause(host: Host, call: Call, body: Pause | None) -> RunStanding:
    """Start no further node until the run is resumed; `immediate` gives up the attempts under way."""
    wanted = body or Pause()
    return await host.runs.pause(
        call.path["runId"], call.tenant, call.caller.principal, wanted.reason, wanted.drain_policy
    )


@api.post(f"{_RUN}:resume", "runs.resume", {202: RunStanding}, scopes=("runs:cancel",), problems=_CHANGE)
async def resume(host: Host, call: Call, body: Reason | None) -> RunStanding:
    """Go on with a paused run."""
    return await host.runs.resume(call.path["runId"], call.tenant, call.caller.principal)


@api.get(f"{_RUN}:diff", "runs.diff", RunDiff)
async def diff(host: Host, call: Call, query: DiffQuery) -> RunDiff:
    """Where two runs went apart."""
    return await host.runs.diff(call.path["runId"], query.against, call.tenant)


@api.get(f"{_RUN}/ancestry", "runs.ancestry", Ancestry)
async def ancestry(host: Host, call: Call) -> Ancestry:
    """The run that started this one."""
    return await host.runs.ancestry(call.path["runId"], call.tenant)


@api.get(f"{_RUN}/debug-bundle", "runs.debug-bundle", dict[str, Any])
async def debug_bundle(host: Host, call: Call) -> dict[str, Any]:
    """Everything about a run, redacted."""
    run_id, tenant = call.path["runId"], call.tenant
    bundle = await host.runs.debug_bundle(run_id, tenant)
    return {**bundle, "annotations": await host.annotations.listed(run_id, tenant)}


@api.post(f"{_RUN}/signals/{{name}}", "runs.signal", {202: RunStanding}, scopes=("runs:signal",), problems=_CHANGE)
async def signal(host: Host, call: Call, body: Signal | None) -> RunStanding:
    """Hand a named event to a run; it is kept until a node waits for it."""
    payload = body.payload if body else None
    return await host.runs.signal(
        call.path["runId"],
        call.tenant,
        call.path["name"],
        payload,
        call.caller.principal,
        signal_id=call.id_for("sig"),
    )


@api.get(f"{_RUN}/query", "runs.query", Value, problems=("expression_invalid",))
async def query(host: Host, call: Call, query: ExpressionQuery) -> Value:
    """The value of an expression over a run's state."""
    return Value(value=await host.runs.query(call.path["runId"], call.tenant, query.expression))


@api.get(f"{_RUN}/artifacts", "artifacts.list", Artifacts, scopes=("artifacts:read",))
async def artifacts(host: Host, call: Call) -> Artifacts:
    """The artifacts of a run, without their data."""
    return Artifacts(artifacts=await host.runs.artifacts(call.path["runId"], call.tenant))


@api.get(f"{_RUN}/artifacts/{{artifactId}}", "artifacts.get", Artifact, scopes=("artifacts:read",))
async def artifact(host: Host, call: Call) -> Artifact:
    """One artifact."""
    return await host.runs.artifact(call.path["runId"], call.path["artifactId"], call.tenant)
