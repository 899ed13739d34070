"""Lists of runs, with their filters and cursors (W4), and what is counted over them.

A list shows beside where each run stands its title, what it used, and the words to find it by (G1 and G2 of `log`).

- G3  A search reads two tables and no log, whatever it is sorted by.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from forestay.kernel import Ledger, Problem, base64url, bound_of, canonical, iso
from forestay.runs.log import WORDS_LENGTH
from forestay.runs.spending import MICRO
from forestay.runs.types import RunFilter, RunPage, RunStatus, RunSummary

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


Sort = Literal["newest", "oldest", "longest", "dearest"]
SORTS: tuple[Sort, ...] = get_args(Sort)
_ORDER: dict[Sort, str] = {
    "newest": "runs.run_id DESC",
    "oldest": "runs.run_id",
    "longest": "COALESCE(runs.ended, runs.updated) - runs.created DESC, runs.run_id DESC",
    "dearest": "COALESCE(d.cost, 0) DESC, COALESCE(d.input_tokens + d.output_tokens, 0) DESC, runs.run_id DESC",
}
_JOINED = "FROM runs LEFT JOIN run_digests d ON d.run_id = runs.run_id"


class RunDigest(msgspec.Struct, frozen=True):
    """A line of a list of runs, as people read it."""

    run: RunSummary
    title: str
    input_tokens: int
    output_tokens: int
    cost_usd: float
    took_ms: int | None  # None while it runs

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class DigestPage(msgspec.Struct, frozen=True):
    """Some of the runs that a search found, and how many it found."""

    runs: list[RunDigest]
    total: int


async def search(
    ledger: Ledger, tenant: str, filters: RunFilter, text: str, sort: Sort, start: int, limit: int
) -> DigestPage:
    """The tenant's runs that match, from the one at `start` on."""
    if not 1 <= limit <= 200:
        raise Problem("out_of_range", "`limit` is 1 to 200.", at="limit", observed=limit)
    where, values = where_of(filters)
    where, values = ["runs.tenant = ?", *where], [tenant, *values]
    if text.strip():
        asked = f"%{_literal(text)}%"
        places = ("d.words", "LOWER(runs.workflow_id)", "LOWER(runs.tags)", "LOWER(runs.error)", "runs.run_id")
        where.append("(" + " OR ".join(f"{place} LIKE ? ESCAPE '!'" for place in places) + ")")
        values += [asked] * len(places)
    matching = f"{_JOINED} WHERE {' AND '.join(where)}"
    columns = ", ".join(f"runs.{name}" for name in SUMMARY_COLUMNS)
    rows = await ledger.query(
        f"SELECT {columns}, d.title, d.input_tokens, d.output_tokens, d.cost {matching} "
        f"ORDER BY {_ORDER[sort]} LIMIT ? OFFSET ?",
        [*values, limit, start],
    )
    ((total,),) = await ledger.query(f"SELECT COUNT(*) {matching}", values)
    return DigestPage([_digest(row) for row in rows], int(total))


def _literal(text: str) -> str:
    """A text as LIKE reads it, every sign as itself."""
    small = " ".join(text.lower().split())[:WORDS_LENGTH]
    return small.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _digest(row: tuple[Any, ...]) -> RunDigest:
    *known, title, read, written, cost = row
    created, ended = known[SUMMARY_COLUMNS.index("created")], known[SUMMARY_COLUMNS.index("ended")]
    took = None if ended is None else int(ended - created)
    return RunDigest(summary(*known), title or "", int(read or 0), int(written or 0), int(cost or 0) / MICRO, took)


class Span(msgspec.Struct, frozen=True):
    """What happened in a stretch of time: of the runs that began in it."""

    at: str
    runs: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    middle_ms: int | None = None  # half of those that ended took no longer
    slow_ms: int | None = None  # and 95 of 100 no longer than this


async def trend(ledger: Ledger, tenant: str, since: int, span_ms: int, spans: int) -> list[Span]:
    """`spans` stretches of time from `since` on, the empty ones too."""
    bounds = [since, span_ms, tenant, since, since + span_ms * spans]
    counted = await ledger.query(_COUNTED, bounds)
    lasted = {int(place): (int(middle), int(slow)) for place, middle, slow in await ledger.query(_LASTED, bounds)}
    found = {int(place): [int(item or 0) for item in sums] for place, *sums in counted}
    return [_span(since + span_ms * at, found.get(at, [0] * 5), lasted.get(at)) for at in range(spans)]


def _span(at: int, sums: list[int], lasted: tuple[int, int] | None) -> Span:
    runs, failed, read, written, cost = sums
    return Span(iso(at), runs, failed, read, written, cost / MICRO, *(lasted or (None, None)))


_PLACE = "(runs.created - CAST(? AS BIGINT)) / CAST(? AS BIGINT)"
_WITHIN = "runs.tenant = ? AND runs.created >= ? AND runs.created < ?"
_COUNTED = f"""
    SELECT place, COUNT(*), SUM(failed), SUM(input_tokens), SUM(output_tokens), SUM(cost) FROM (
        SELECT {_PLACE} AS place, CASE WHEN runs.status = 'failed' THEN 1 ELSE 0 END AS failed,
               d.input_tokens, d.output_tokens, d.cost {_JOINED} WHERE {_WITHIN}
    ) AS placed GROUP BY place
"""  # noqa: S608 - the words are ours
_LASTED = f"""
    SELECT place, MIN(CASE WHEN nth * 2 >= many THEN took END),
           MIN(CASE WHEN nth * 100 >= many * 95 THEN took END) FROM (
        SELECT place, took, ROW_NUMBER() OVER (PARTITION BY place ORDER BY took) AS nth,
               COUNT(*) OVER (PARTITION BY place) AS many FROM (
            SELECT {_PLACE} AS place, runs.ended - runs.created AS took FROM runs
            WHERE {_WITHIN} AND runs.ended IS NOT NULL
        ) AS ended
    ) AS ranked GROUP BY place
"""  # noqa: S608 - the words are ours
