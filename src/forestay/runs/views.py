"""What runs look like from outside, nothing sensitive: snapshots, and lists with their filters and cursors (W4).

A list shows beside where each run stands its title, what it used, and the words to find it by.

- G1  The title and the words are those of the run's inputs. A run that hides something has neither, from the record
      on that says so: a list must not show, and a search must not answer, what the run's own page masks.
- G2  A run counts what it used itself: not what the history of a fork used, and nothing for a replay.
- G3  A search reads two tables and no log, whatever it is sorted by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import msgspec

from forestay.kernel import Ledger, Problem, Record, Transaction, base64url, bound_of, canonical, iso
from forestay.runs import channels
from forestay.runs.expressions import Scope
from forestay.runs.log import ENGINE_VERSION, FORK, PREFIX, PRIVATE, type_of
from forestay.runs.secrets import TELLING, cover, cover_run
from forestay.runs.spending import MICRO, cost_of
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
