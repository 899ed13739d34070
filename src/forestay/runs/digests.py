"""What a list of runs shows beside where each stands: its title, what it used, and the words to find it by.

- G1  The title and the words are those of the run's inputs. A run that hides something has neither, from the record
      on that says so: a list must not show, and a search must not answer, what the run's own page masks.
- G2  A run counts what it used itself: not what the history of a fork used, and nothing for a replay.
- G3  A search reads two tables and no log, whatever it is sorted by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import msgspec

from forestay.kernel import Ledger, Problem, Record, Transaction, iso
from forestay.runs.log import FORK, PREFIX, PRIVATE, type_of
from forestay.runs.secrets import TELLING
from forestay.runs.spending import MICRO, cost_of
from forestay.runs.types import RunFilter, RunSummary
from forestay.runs.views import SUMMARY_COLUMNS, summary, where_of

TITLE_LENGTH = 200
WORDS_LENGTH = 2000
_TITLED = ("question", "task", "title", "prompt", "message", "text", "objective", "name")
_NEVER = 2**53  # a replay performs nothing, so nothing of it counts
_HIDDEN = ("outputs", "next", "value", "overlay")  # what a record keeps in its private part when it is not shown

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


class DigestsProjection:
    """One row a run (G1, G2)."""

    name = "run_digests"
    version = 1
    prefix = PREFIX
    schema = """
        CREATE TABLE run_digests (
            run_id TEXT PRIMARY KEY, title TEXT NOT NULL, words TEXT NOT NULL, counts_from BIGINT NOT NULL,
            input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cost BIGINT NOT NULL
        )
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        run_id = records[0].stream[len(PREFIX) :]
        for record in records:
            if record.seq == 0:
                _insert(tx, run_id, record)
            elif record.type == "provider.usage":
                _count(tx, run_id, record)
            if record.type == "forestay.run.forked":
                _retitle(tx, run_id, (record.payload.get("overlay") or {}).get("inputs") or {})
            if record.type in TELLING and _hides(record):
                tx.execute("UPDATE run_digests SET title = '', words = '' WHERE run_id = ?", (run_id,))


def _insert(tx: Transaction, run_id: str, record: Record) -> None:
    private, fork = record.attrs.get(PRIVATE) or {}, record.attrs.get(FORK)
    open_to_all = not {"inputs", "secrets", "hides"} & private.keys()
    inputs = record.payload.get("inputs") or {}
    start = 0 if fork is None else fork["fromSeq"] if fork["mode"] == "branch" else _NEVER
    tx.execute(
        "INSERT INTO run_digests VALUES (?, ?, ?, ?, 0, 0, 0)",
        (run_id, title_of(inputs) if open_to_all else "", words_of(inputs) if open_to_all else "", start),
    )


def _retitle(tx: Transaction, run_id: str, inputs: dict[str, Any]) -> None:
    """A branch is called by the inputs that are laid over its source's; one that hides something stays nameless."""
    if title := title_of(inputs):
        sql = "UPDATE run_digests SET title = ?, words = ? WHERE run_id = ? AND words <> ''"
        tx.execute(sql, (title, words_of(inputs), run_id))


def _count(tx: Transaction, run_id: str, record: Record) -> None:
    used = record.payload
    tx.execute(
        "UPDATE run_digests SET input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, cost = cost + ? "
        "WHERE run_id = ? AND counts_from <= ?",
        (
            used["inputTokens"],
            used["outputTokens"],
            cost_of(used.get("costEstimateUsd") or 0),
            run_id,
            record.seq,
        ),
    )


def _hides(record: Record) -> bool:
    """Whether a record has what its run must not show (H1 and H2 of `secrets`)."""
    private = record.attrs.get(PRIVATE) or {}
    result = private.get("result")
    told = isinstance(result, dict) and bool(result.get("secrets"))
    return told or (type_of(record) != "node.dispatched" and any(name in private for name in _HIDDEN))


def title_of(inputs: dict[str, Any]) -> str:
    """What a person would call the run: its question, or else the first text that it was given, on one line."""
    named = [inputs[name] for name in _TITLED if isinstance(inputs.get(name), str)]
    texts = [*named, *(value for value in inputs.values() if isinstance(value, str))]
    found = next((" ".join(text.split()) for text in texts if text.strip()), "")
    return found if len(found) <= TITLE_LENGTH else found[: TITLE_LENGTH - 1].rstrip() + "…"


def words_of(inputs: dict[str, Any]) -> str:
    """The texts of the inputs in small letters, as much of them as a search reads."""
    return " ".join(" ".join(_texts(inputs)).lower().split())[:WORDS_LENGTH]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


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
