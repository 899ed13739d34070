"""`/host/v1/runs`: search runs by their words; results have duration and cost."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from forestay.host import Host
from forestay.runs import RunDigest, RunFilter, RunStatus, Sort
from forestay.surface.operations import Call, Operations, Query, View

Text = Annotated[str, Meta(max_length=256)]
Moment = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})]
api = Operations[Host](scopes=("runs:read",), contract="lafs", tag="runs")


class RunsQuery(Query, frozen=True):
    """`q` is looked for in inputs, workflows, tags, errors and ids; `start` is the place of the first one shown."""

    q: Text = ""
    status: Annotated[str, Meta(max_length=256, description="One or more, with commas between.")] = ""
    workflow_id: Text | None = None
    tag: Text | None = None
    since: Moment | None = None
    until: Moment | None = None
    sort: Sort = "newest"
    start: Annotated[int, Meta(ge=0, le=2**31)] = 0
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class RunView(View, frozen=True):
    """A run in one line; `title` is what it was asked, where the run hides nothing."""

    run_id: str
    workflow_id: str
    status: RunStatus
    created_at: str
    updated_at: str
    title: str
    input_tokens: int
    output_tokens: int
    cost_usd: float
    tags: list[str]
    completed_at: str | None = None
    took_ms: int | None = None
    error_code: str | None = None
    parent_run_id: str | None = None


class RunList(View, frozen=True):
    runs: list[RunView]
    total: int


@api.get("/host/v1/runs", "runs.search", RunList, problems=("out_of_range",))
async def search(host: Host, call: Call, query: RunsQuery) -> RunList:
    """The tenant's runs that match, sorted as asked."""
    filters = RunFilter(
        status=[name for name in query.status.split(",") if name],
        workflow_id=query.workflow_id,
        tag=query.tag,
        created_after=query.since,
        created_before=query.until,
    )
    found = await host.runs.search(call.tenant, filters, query.q, sort=query.sort, start=query.start, limit=query.limit)
    return RunList(runs=[_view(item) for item in found.runs], total=found.total)


def _view(item: RunDigest) -> RunView:
    run = item.run
    return RunView(
        run_id=run.run_id,
        workflow_id=run.workflow_id,
        status=run.status,
        created_at=run.created_at,
        updated_at=run.updated_at,
        title=item.title,
        input_tokens=item.input_tokens,
        output_tokens=item.output_tokens,
        cost_usd=item.cost_usd,
        tags=run.tags,
        completed_at=run.completed_at,
        took_ms=item.took_ms,
        error_code=run.error_code,
        parent_run_id=run.parent_run_id,
    )
