"""What runs look like from outside, nothing sensitive: snapshots, and lists with their filters and cursors (W4)."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.kernel import Ledger, Problem, base64url, bound_of, canonical, iso
from forestay.runs import channels
from forestay.runs.expressions import Scope
from forestay.runs.log import ENGINE_VERSION
from forestay.runs.secrets import cover, cover_run
from forestay.runs.state import MASK, NodeState, RunState, shown_outputs
from forestay.runs.types import RunError, RunFilter, RunPage, RunSnapshot, RunStatus, RunSummary

_SHOWN = {
    "approval": "suspended",
    "input": "suspended",
    "external": "suspended",
    "stopped": "suspended",
    "idle": "pending",
}


def snapshot(state: RunState, now: int) -> RunSnapshot:
    """The run as GET /v1/runs/{runId} shows it."""
    now = state.at if state.ended is not None else now - state.lag  # an ended run grows no older
    started = state.started
    hidden = state.plan.sensitive
    error, status, created = state.error, state.status, iso(state.created_ms)
    shown = RunSnapshot(
        run_id=state.run_id,
        workflow_id=state.plan.workflow.id,
        workflow_version=state.plan.workflow.version,
        status=status,
        owner=state.owner,
        current_node_id=current_node(state, status),
        created_at=created,
        started_at=created,
        completed_at=iso(state.ended_ms) if state.ended is not None else None,
        paused_at=iso(state.paused_ms) if state.paused_ms is not None else None,
        agent=state.agent,
        run_orchestrator=state.orchestrator,
        node_states={
            name: _node(node) for name, node in state.nodes.items() if node.status != "idle" or node.iteration
        },
        inputs=started.get("inputs", {}),
        variables={name: MASK if name in hidden else value for name, value in state.variables.items()},
        channels={name: _channel(item, now) for name, item in state.channels.items()},
        outputs=state.outputs,
        error=None
        if error is None
        else RunError(code=error["code"], message=error["message"], details=error.get("details")),
        engine_version=started.get("engineVersion", ENGINE_VERSION),
        tags=started.get("tags", []),
        metadata=started.get("metadata", {}),
        configurable=state.configurable,
        metrics={"openwopCost": state.usage} if state.usage else None,
        scope_id=started.get("scopeId"),
        parent_run_id=state.parent["runId"] if state.parent else None,
        parent_node_id=state.parent["nodeId"] if state.parent else None,
        source_run_id=state.source["source"] if state.source else None,
        last_sequence=state.seq,
    )
    return cover_run(state, shown) if state.secrets else shown


def scope_of(state: RunState, now: int) -> Scope:
    """What an expression of a caller can name: the snapshot's values and each node's status, error and output."""
    shown = snapshot(state, now)
    nodes = {
        name: {
            "status": node.status,
            "error": node.error,
            "output": shown_outputs(state, name, node.outputs) if node.outputs else None,
        }
        for name, node in state.nodes.items()
    }
    names = {
        **shown.variables,  # a name alone is a variable as it is shown: a hidden one answers no question
        "status": state.status,
        "variables": shown.variables,
        "channels": shown.channels,
        "inputs": shown.inputs,
        "nodes": cover(state, nodes),
    }
    return state.scope({}, state.status, names)


def current_node(state: RunState, status: RunStatus) -> str | None:
    """The node that holds the interrupt, when the run waits for one."""
    if not status.startswith("waiting"):
        return None
    return next((name for name in state.active if state.nodes[name].interrupt is not None), None)


def _node(node: NodeState) -> dict[str, Any]:
    shown: dict[str, Any] = {"status": _SHOWN.get(node.status, node.status), "attempt": node.attempt}
    if node.started_ms:
        shown["startedAt"] = iso(node.started_ms)
    if node.ended_ms and node.status in ("completed", "failed", "skipped", "cancelled"):
        shown["endedAt"] = iso(node.ended_ms)
    if node.iteration:
        shown["iteration"] = node.iteration
    if node.error is not None:
        shown["error"] = node.error
    if node.interrupt is not None:
        shown["interruptId"] = node.interrupt
    return shown


def _channel(item: channels.ChannelState, now: int) -> Any:
    return MASK if item.sensitive else channels.read(item, now)


SUMMARY_COLUMNS = (
    "run_id", "workflow_id", "status", "created", "updated", "ended", "scope_id", "tags", "parent", "error",
)  # fmt: skip
_COLUMNS = ", ".join(SUMMARY_COLUMNS)


class _Cursor(msgspec.Struct, frozen=True):
    before: str


async def list_runs(ledger: Ledger, filters: RunFilter, tenant: str, cursor: str | None, limit: int) -> RunPage:
    """A page, newest first; ids sort by time, so the cursor is the last id seen."""
    if not 1 <= limit <= 200:
        raise Problem("out_of_range", "`limit` is 1 to 200.", at="limit", observed=limit)
    where, values = where_of(filters)
    where.insert(0, "tenant = ?")
    values.insert(0, tenant)
    if cursor is not None:
        where.append("run_id < ?")
        values.append(_read_cursor(cursor))
    rows = await ledger.query(
        f"SELECT {_COLUMNS} FROM runs WHERE {' AND '.join(where)} ORDER BY run_id DESC LIMIT ?",  # noqa: S608 - the words are ours
        [*values, limit + 1],
    )
    shown = [summary(*row) for row in rows[:limit]]
    return RunPage(runs=shown, next_cursor=_cursor(shown[-1].run_id) if len(rows) > limit else None)


def summary(
    run_id: str,
    workflow_id: str,
    status: RunStatus,
    created: int,
    updated: int,
    ended: int | None,
    scope_id: str | None,
    tags: str,
    parent: str | None,
    error: str | None,
) -> RunSummary:
    """A row of `runs`, by `SUMMARY_COLUMNS`."""
    return RunSummary(
        run_id=run_id,
        workflow_id=workflow_id,
        status=status,
        created_at=iso(created),
        updated_at=iso(updated),
        completed_at=iso(ended) if ended is not None else None,
        scope_id=scope_id,
        tags=msgspec.json.decode(tags),
        parent_run_id=parent,
        error_code=error,
    )


async def count_runs(ledger: Ledger, tenant: str) -> dict[str, int]:
    """How many runs the tenant has, by status; a status that no run has is not there."""
    rows = await ledger.query("SELECT status, COUNT(*) FROM runs WHERE tenant = ? GROUP BY status", [tenant])
    return {str(status): int(count) for status, count in rows}


async def count_questions(ledger: Ledger, tenant: str) -> int:
    """How many questions the tenant's runs ask now; a parent that waits for its children asks none of theirs."""
    ((found,),) = await ledger.query("SELECT SUM(asks) FROM runs WHERE tenant = ? AND asks > 0", [tenant])
    return int(found or 0)


async def asking(ledger: Ledger, tenant: str, limit: int) -> list[tuple[str, str]]:
    """The runs with an open question, oldest first: id and workflow."""
    sql = "SELECT run_id, workflow_id FROM runs WHERE tenant = ? AND asks > 0 ORDER BY run_id LIMIT ?"
    return [(str(run_id), str(workflow_id)) for run_id, workflow_id in await ledger.query(sql, [tenant, limit])]


def where_of(filters: RunFilter) -> tuple[list[str], list[Any]]:
    """The conditions on rows of `runs` that a filter means, and their values."""
    where: list[str] = []
    values: list[Any] = []
    if filters.status:
        where.append(f"runs.status IN ({', '.join('?' * len(filters.status))})")
        values.extend(filters.status)
    for column, value in (
        ("workflow_id", filters.workflow_id),
        ("scope_id", filters.scope_id),
        ("parent", filters.parent_run_id),
    ):
        if value is not None:
            where.append(f"runs.{column} = ?")
            values.append(value)
    if filters.tag is not None:
        where.append("EXISTS (SELECT 1 FROM run_tags t WHERE t.tag = ? AND t.run_id = runs.run_id)")
        values.append(filters.tag)
    for name, sign, text in (
        ("createdAfter", ">=", filters.created_after),
        ("createdBefore", "<", filters.created_before),
    ):
        if text is not None:
            where.append(f"runs.created {sign} ?")
            values.append(bound_of(text, name))
    return where, values


def _cursor(run_id: str) -> str:
    return base64url.encode(canonical.encode(_Cursor(run_id)))


def _read_cursor(text: str) -> str:
    try:
        return msgspec.json.decode(base64url.decode(text), type=_Cursor).before
    except (ValueError, msgspec.DecodeError) as error:
        raise Problem("schema_mismatch", "This cursor is none of ours.", at="cursor") from error
