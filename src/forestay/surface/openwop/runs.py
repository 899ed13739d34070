"""Operations on runs (OpenWOP §1.1, W4)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field, structs
from starlette.responses import Response

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
from forestay.surface.openwop.bodies import NewFork, NewRun
from forestay.surface.operations import Body, Call, Operation, Query, Result
from forestay.surface.services import Services

Text = Annotated[str, Meta(max_length=4096)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Moment = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})]


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


class Value(Result, frozen=True, omit_defaults=False):
    value: Any


class Artifacts(Result, frozen=True, omit_defaults=False):
    artifacts: list[Artifact]


def operations(services: Services) -> list[Operation]:
    runs = services.runs

    async def create(call: Call) -> Response:
        caller, body, headers = call.caller, call.body, call.request.headers
        if body.mode not in (None, "eval"):
            raise Problem("schema_mismatch", f"There is no mode {body.mode[:40]!r}.", at="$.mode", known=["eval"])
        if body.callback_url is not None:
            services.webhooks.check_callback(body.callback_url)
        reserved = call.id_for("run")
        trace = read_traceparent(headers.get("traceparent"))
        if trace is not None:
            body = structs.replace(body, metadata={**body.metadata, "traceparent": trace})
        try:
            made = await runs.create_run(
                body,
                caller.tenant,
                caller.principal,
                workspace=caller.workspace,
                dedup=headers.get("x-dedup", "").strip().lower() == "enforce",
                engine_version=headers.get("x-force-engine-version"),
                run_id=reserved,
                trusted=caller.test,
            )
        except Problem as problem:
            if reserved is None or problem.details.get("activeRunId") != reserved:
                raise
            # This very request created it before the host died: the answer is the one that was lost (K4).
            snapshot = await runs.get_run(reserved, caller.tenant)
            made = RunCreated(
                run_id=reserved,
                status=snapshot.status,
                events_url=f"/v1/runs/{reserved}/events",
                status_url=f"/v1/runs/{reserved}",
            )
        return call.answer(made, 201, {"Location": f"/v1/runs/{made.run_id}"})

    async def list_(call: Call) -> Response:
        query: ListQuery = call.query
        filters = RunFilter(
            status=list(query.status),
            workflow_id=query.workflow_id,
            tag=query.tag,
            scope_id=query.scope_id,
            parent_run_id=query.parent_run_id,
            created_after=query.created_after,
            created_before=query.created_before,
        )
        return call.answer(await runs.list_runs(filters, call.caller.tenant, query.cursor, query.limit))

    async def get(call: Call) -> Response:
        return call.answer(await runs.get_run(call.path["runId"], call.caller.tenant))

    async def cancel(call: Call) -> Response:
        reason = call.body.reason if call.body else None
        caller = call.caller
        return call.answer(await runs.cancel(call.path["runId"], caller.tenant, caller.principal, reason))

    async def bulk_cancel(call: Call) -> Response:
        caller = call.caller
        results = await runs.bulk_cancel(call.body.run_ids, caller.tenant, caller.principal, call.body.reason)
        return call.answer(BulkCancelled(results=results))

    async def fork(call: Call) -> Response:
        caller = call.caller
        made = await runs.fork(
            call.path["runId"], caller.tenant, call.body, trusted=caller.test, fork_id=call.id_for("run")
        )
        return call.answer(made, 201, {"Location": f"/v1/runs/{made.run_id}"})

    async def pause(call: Call) -> Response:
        caller, body = call.caller, call.body or Pause()
        return call.answer(
            await runs.pause(call.path["runId"], caller.tenant, caller.principal, body.reason, body.drain_policy), 202
        )

    async def resume(call: Call) -> Response:
        return call.answer(await runs.resume(call.path["runId"], call.caller.tenant, call.caller.principal), 202)

    async def diff(call: Call) -> Response:
        return call.answer(await runs.diff(call.path["runId"], call.query.against, call.caller.tenant))

    async def ancestry(call: Call) -> Response:
        return call.answer(await runs.ancestry(call.path["runId"], call.caller.tenant))

    async def debug_bundle(call: Call) -> Response:
        return call.answer(await runs.debug_bundle(call.path["runId"], call.caller.tenant))

    async def signal(call: Call) -> Response:
        payload = call.body.payload if call.body else None
        caller = call.caller
        standing = await runs.signal(call.path["runId"], caller.tenant, call.path["name"], payload, caller.principal)
        return call.answer(standing, 202)

    async def query(call: Call) -> Response:
        value = await runs.query(call.path["runId"], call.caller.tenant, call.query.expression)
        return call.answer(Value(value=value))

    async def artifacts(call: Call) -> Response:
        return call.answer(Artifacts(artifacts=await runs.artifacts(call.path["runId"], call.caller.tenant)))

    async def artifact(call: Call) -> Response:
        path = call.path
        return call.answer(await runs.artifact(path["runId"], path["artifactId"], call.caller.tenant))

    run = "/v1/runs/{runId}"
    return [
        Operation(
            name="runs.create",
            method="POST",
            path="/v1/runs",
            perform=create,
            summary="Start a run; it is on disk when the answer is sent.",
            scopes=("runs:create",),
            body=NewRun,
            headers=("X-Dedup", "X-Force-Engine-Version", "traceparent"),
            answers={201: RunCreated},
            problems=(
                "schema_mismatch",
                "not_found",
                "run_already_active",
                "capability_not_provided",
                "force_engine_version_forbidden",
                "version_out_of_range",
                "mock_provider_forbidden",
                "webhook_url_rejected",
            ),
        ),
        Operation(
            name="runs.list",
            method="GET",
            path="/v1/runs",
            perform=list_,
            summary="Runs of the caller's tenant, newest first.",
            scopes=("runs:read",),
            query=ListQuery,
            answers={200: RunPage},
            problems=("schema_mismatch",),
        ),
        Operation(
            name="runs.get",
            method="GET",
            path=run,
            perform=get,
            summary="Where a run stands.",
            scopes=("runs:read",),
            answers={200: RunSnapshot},
            problems=("not_found",),
        ),
        Operation(
            name="runs.cancel",
            method="POST",
            path=f"{run}/cancel",
            perform=cancel,
            summary="Cancel a run and its children.",
            scopes=("runs:cancel",),
            body=Reason,
            body_optional=True,
            answers={200: RunStanding},
            problems=("schema_mismatch", "not_found", "state_conflict"),
        ),
        Operation(
            name="runs.bulk-cancel",
            method="POST",
            path="/v1/runs:bulk-cancel",
            perform=bulk_cancel,
            summary="Cancel up to 100 runs; one result per id, in the order asked.",
            scopes=("runs:cancel",),
            body=BulkCancel,
            answers={200: BulkCancelled},
            problems=("schema_mismatch",),
        ),
        Operation(
            name="runs.fork",
            method="POST",
            path=f"{run}:fork",
            perform=fork,
            summary="Replay a run, or branch off it, from any sequence.",
            scopes=("runs:create", "runs:read"),
            body=NewFork,
            answers={201: RunForked},
            problems=(
                "schema_mismatch",
                "mock_provider_forbidden",
                "not_found",
                "replay_out_of_range",
                "state_conflict",
            ),
        ),
        Operation(
            name="runs.pause",
            method="POST",
            path=f"{run}:pause",
            perform=pause,
            summary="Start no further node until the run is resumed; `immediate` gives up the attempts under way.",
            scopes=("runs:cancel",),
            body=Pause,
            body_optional=True,
            answers={202: RunStanding},
            problems=("schema_mismatch", "not_found", "state_conflict"),
        ),
        Operation(
            name="runs.resume",
            method="POST",
            path=f"{run}:resume",
            perform=resume,
            summary="Go on with a paused run.",
            scopes=("runs:cancel",),
            body=Reason,
            body_optional=True,
            answers={202: RunStanding},
            problems=("schema_mismatch", "not_found", "state_conflict"),
        ),
        Operation(
            name="runs.diff",
            method="GET",
            path=f"{run}:diff",
            perform=diff,
            summary="Where two runs went apart.",
            scopes=("runs:read",),
            query=DiffQuery,
            answers={200: RunDiff},
            problems=("schema_mismatch", "not_found"),
        ),
        Operation(
            name="runs.ancestry",
            method="GET",
            path=f"{run}/ancestry",
            perform=ancestry,
            summary="The run that started this one.",
            scopes=("runs:read",),
            answers={200: Ancestry},
            problems=("not_found",),
        ),
        Operation(
            name="runs.debug-bundle",
            method="GET",
            path=f"{run}/debug-bundle",
            perform=debug_bundle,
            summary="Everything about a run, redacted.",
            scopes=("runs:read",),
            answers={200: dict[str, Any]},
            problems=("not_found",),
        ),
        Operation(
            name="runs.signal",
            method="POST",
            path=f"{run}/signals/{{name}}",
            perform=signal,
            summary="Hand a named event to a run; it is kept until a node waits for it.",
            scopes=("runs:signal",),
            body=Signal,
            body_optional=True,
            answers={202: RunStanding},
            problems=("schema_mismatch", "not_found", "state_conflict"),
        ),
        Operation(
            name="runs.query",
            method="GET",
            path=f"{run}/query",
            perform=query,
            summary="The value of an expression over a run's state.",
            scopes=("runs:read",),
            query=ExpressionQuery,
            answers={200: Value},
            problems=("schema_mismatch", "expression_invalid", "not_found"),
        ),
        Operation(
            name="artifacts.list",
            method="GET",
            path=f"{run}/artifacts",
            perform=artifacts,
            summary="The artifacts of a run, without their data.",
            scopes=("artifacts:read",),
            answers={200: Artifacts},
            problems=("not_found",),
        ),
        Operation(
            name="artifacts.get",
            method="GET",
            path=f"{run}/artifacts/{{artifactId}}",
            perform=artifact,
            summary="One artifact.",
            scopes=("artifacts:read",),
            answers={200: Artifact},
            problems=("not_found",),
        ),
    ]
