"""GET /v1/runs: filters and cursors over the `runs` table (W4)."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.kernel import Ledger, Problem, base64url, bound_of, canonical
from forestay.runs.types import RunFilter, RunPage
from forestay.runs.views import summary

_COLUMNS = "run_id, workflow_id, status, created, updated, ended, scope_id, tags, parent, error"


class _Cursor(msgspec.Struct, frozen=True):
    before: str


async def list_runs(ledger: Ledger, filters: RunFilter, tenant: str, cursor: str | None, limit: int) -> RunPage:
    """A page, newest first; ids sort by time, so the cursor is the last id seen."""
    if not 1 <= limit <= 200:
        raise Problem("out_of_range", "`limit` is 1 to 200.", at="limit", observed=limit)
    where, values = _where(filters)
    where.insert(0, "tenant = ?")
    values.insert(0, tenant)
    if cursor is not None:
        where.append("run_id < ?")
        values.append(_read_cursor(cursor))
    rows = await ledger.query(
        f"SELECT {_COLUMNS} FROM runs WHERE {' AND '.join(where)} ORDER BY run_id DESC LIMIT ?",  # noqa: S608 - the words are ours
        [*values, limit + 1],
    )
    shown = [(*row[:7], msgspec.json.decode(row[7]), *row[8:]) for row in rows[:limit]]
    following = _cursor(shown[-1][0]) if len(rows) > limit else None
    return RunPage(runs=[summary(row) for row in shown], next_cursor=following)


async def count_runs(ledger: Ledger, tenant: str) -> dict[str, int]:
    """How many runs the tenant has, by status; a status that no run has is not there."""
    rows = await ledger.query("SELECT status, COUNT(*) FROM runs WHERE tenant = ? GROUP BY status", [tenant])
    return {str(status): int(count) for status, count in rows}


def _where(filters: RunFilter) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    if filters.status:
        where.append(f"status IN ({', '.join('?' * len(filters.status))})")
        values.extend(filters.status)
    for column, value in (
        ("workflow_id", filters.workflow_id),
        ("scope_id", filters.scope_id),
        ("parent", filters.parent_run_id),
    ):
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    if filters.tag is not None:
        where.append("EXISTS (SELECT 1 FROM run_tags t WHERE t.tag = ? AND t.run_id = runs.run_id)")
        values.append(filters.tag)
    for name, sign, text in (
        ("createdAfter", ">=", filters.created_after),
        ("createdBefore", "<", filters.created_before),
    ):
        if text is not None:
            where.append(f"created {sign} ?")
            values.append(bound_of(text, name))
    return where, values


def _cursor(run_id: str) -> str:
    return base64url.encode(canonical.encode(_Cursor(run_id)))


def _read_cursor(text: str) -> str:
    try:
        return msgspec.json.decode(base64url.decode(text), type=_Cursor).before
    except (ValueError, msgspec.DecodeError) as error:
        raise Problem("schema_mismatch", "This cursor is none of ours.", at="cursor") from error
