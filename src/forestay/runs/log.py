"""A run's log: how events become records of the ledger, and how records keep the tables `runs` and `engines`.

The short keys of a record's attributes are known here and nowhere else. The last event of each batch carries the run's
standing, which the `runs` table is told in the same transaction: a status and its event change together (OpenWOP §1.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forestay.kernel import Append, Draft, Queue, Record, Transaction, canonical, former, iso
from forestay.runs.state import WAITING, Event, RunState
from forestay.runs.types import TERMINAL, RunEvent

PREFIX = "run/"
ENGINES = "engine/"
ENGINE_VERSION = "1.0.0"
# Attributes of a record: node, cause, private part, standing (what the `runs` table is told), fork, and the run's own
# time where the wall clock was ahead of it.
NODE, CAUSE, PRIVATE, STANDING, FORK, AT = "n", "c", "p", "s", "f", "t"


def stream_of(run_id: str) -> str:
    return PREFIX + run_id


def append_of(state: RunState, events: Sequence[Event], standing: dict[str, Any] | None) -> Append:
    """The append of a run's next events, at the place that they have; the last one carries the standing."""
    last = len(events) - 1
    drafts = [to_draft(event, standing if place == last else None) for place, event in enumerate(events)]
    return Append(PREFIX + state.run_id, drafts, events[0].seq - 1)


def to_draft(event: Event, standing: dict[str, Any] | None = None, fork: dict[str, Any] | None = None) -> Draft:
    attrs: dict[str, Any] = {}
    if event.node is not None:
        attrs[NODE] = event.node
    if event.cause is not None:
        attrs[CAUSE] = event.cause
    if event.private is not None:
        attrs[PRIVATE] = event.private
    if event.at and event.at != event.ts:
        attrs[AT] = event.at
    if standing is not None:
        attrs[STANDING] = standing
    if fork is not None:
        attrs[FORK] = fork
    return Draft(event.type, event.payload, attrs, event.id or None, event.ts)


def type_of(record: Record) -> str:
    """The event's type; those of our own had another first word until 0.1."""
    return former.renamed(record.type) if former.FORMER in record.type else record.type


def to_event(record: Record) -> Event:
    attrs = record.attrs
    return Event(
        type_of(record),
        record.payload,
        attrs.get(NODE),
        attrs.get(PRIVATE),
        attrs.get(CAUSE),
        record.id,
        record.ts,
        record.seq,
        attrs.get(AT, record.ts),
    )


def to_wire(record: Record) -> RunEvent:
    """The event as the contract shows it: nothing private."""
    return RunEvent(
        event_id=record.id,
        run_id=record.stream[len(PREFIX) :],
        type=type_of(record),
        payload=record.payload,
        timestamp=iso(record.ts),
        sequence=record.seq,
        node_id=record.attrs.get(NODE),
        engine_version=ENGINE_VERSION,
        causation_id=record.attrs.get(CAUSE),
    )


def overlaid_tags(record: Record) -> list[str] | None:
    """The tags that a branch lays over its source's; None when the record is none that does."""
    overlay = record.payload.get("overlay", {}) if record.type == "forestay.run.forked" else {}
    return overlay.get("tags")


def standing_of(state: RunState, instance: str) -> dict[str, Any]:
    """What the `runs` table keeps of a run, told with the last event of each batch."""
    stands = state.standing
    standing: dict[str, Any] = {"st": stands.status, "i": instance}
    if stands.wake is not None:
        standing["w"] = stands.wake
    if stands.busy:
        standing["b"] = 1
    if stands.questions:
        standing["q"] = stands.questions
    link = state.parent
    if link is not None and not link.get("detached"):
        standing["d"] = link.get("depth", 1)
    if state.ended is not None:
        if link is not None:
            standing["p"] = link["runId"]
        if state.children or state.orphans:
            standing["k"] = 1
        if state.error is not None:
            standing["e"] = str(state.error.get("code", ""))
    elif state.children and state.waits_for_children:
        standing["c"] = 1
    return standing


# A run that waits for nothing but its children waits as they do: `status` is theirs when all of them wait, else its
# `own` (W21). `{0}` leads to the run.
_PLACE = " ".join(f"WHEN '{status}' THEN {place}" for place, (_, status) in enumerate(WAITING))
_NAME = " ".join(f"WHEN {place} THEN '{status}'" for place, (_, status) in enumerate(WAITING))
_WAIT_AS_CHILDREN = f"""
    UPDATE runs SET status = COALESCE((
        SELECT CASE WHEN max(CASE c.status {_PLACE} ELSE 9 END) < 9
               THEN CASE min(CASE c.status {_PLACE} ELSE 9 END) {_NAME} END END
        FROM runs c WHERE c.parent = runs.run_id AND c.attached = 1 AND c.ended IS NULL
    ), own) WHERE run_id = {{0}} AND waits = 1
"""  # noqa: S608 - the words are ours
# Two children may change at once, each in a process of its own: the second waits here for the first to be visible.
_HOLD = "UPDATE runs SET waits = waits WHERE run_id = {0}"


QUEUE = Queue(
    table="runs",
    id="run_id",
    key="root",
    owner="instance",
    tenant="tenant",
    due="(q.busy = 1 OR q.wake <= ?)",
    open="q.ended IS NULL",
)
"""The runs as work that processes share. A run and all that descends from it have one owner: they catch up together
(T5), and a child's end reaches its parent without leaving the process."""


_ASKING = ("waiting-approval", "waiting-input", "waiting-external")  # until 0.3 a standing had no number of questions


class RunsProjection:
    """One row a run. `busy` and `wake` are what a sweep needs to find work after a restart."""

    name = "runs"
    version = 5
    prefix = PREFIX
    schema = """
        CREATE TABLE runs (
            run_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, workflow_id TEXT NOT NULL, status TEXT NOT NULL,
            own TEXT NOT NULL, waits BIGINT NOT NULL, attached BIGINT NOT NULL, scope_id TEXT, parent TEXT, source TEXT,
            tags TEXT NOT NULL, created BIGINT NOT NULL, updated BIGINT NOT NULL, ended BIGINT, error TEXT, wake BIGINT,
            busy BIGINT NOT NULL, instance TEXT, root TEXT NOT NULL,
            asks BIGINT NOT NULL
        );
        CREATE INDEX runs_tenant ON runs (tenant, run_id);
        CREATE INDEX runs_status ON runs (tenant, status);
        CREATE INDEX runs_wake ON runs (wake) WHERE wake IS NOT NULL;
        CREATE INDEX runs_busy ON runs (run_id) WHERE busy = 1;
        CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;
        CREATE INDEX runs_asks ON runs (tenant) WHERE asks > 0;
        CREATE INDEX runs_root ON runs (root) WHERE ended IS NULL;
        CREATE TABLE run_tags (tag TEXT NOT NULL, run_id TEXT NOT NULL, PRIMARY KEY (tag, run_id));
        CREATE INDEX run_tags_of ON run_tags (run_id)
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        run_id, told = records[0].stream[len(PREFIX) :], records[0].seq > 0
        for record in records:
            if record.seq == 0:
                _insert(tx, run_id, record, next((item for item in records if STANDING in item.attrs), record))
            if record.type == "forestay.run.forked" and (tags := overlaid_tags(record)) is not None:
                tx.execute("UPDATE runs SET tags = ? WHERE run_id = ?", (canonical.encode(tags).decode(), run_id))
                tx.execute("DELETE FROM run_tags WHERE run_id = ?", (run_id,))
                _tag(tx, run_id, tags)
            if (standing := record.attrs.get(STANDING)) is not None:
                if told:  # the first one of a new run went in with it
                    tx.execute(_STAND, (*_columns(record), run_id))
                told = True
                _tell_relatives(tx, run_id, standing)


_STANDS = ("status", "own", "waits", "updated", "ended", "error", "wake", "busy", "instance", "asks")
_MADE = ("run_id", "tenant", "workflow_id", "attached", "scope_id", "parent", "source", "tags", "created", "root")
_STAND = f"UPDATE runs SET {', '.join(f'{column} = ?' for column in _STANDS)} WHERE run_id = ?"  # noqa: S608
_INSERT = f"INSERT INTO runs ({', '.join(_MADE + _STANDS)}) VALUES ({', '.join('?' * len(_MADE + _STANDS))})"  # noqa: S608


def _columns(record: Record) -> tuple[Any, ...]:
    """What a record says of a run's standing, as `_STANDS` names it; a run that says nothing is to be taken up."""
    standing = record.attrs.get(STANDING, {"st": "pending", "b": 1, "i": None})
    status = standing["st"]
    return (
        status,
        status,
        standing.get("c", 0),
        record.ts,
        record.ts if status in TERMINAL else None,
        standing.get("e"),
        standing.get("w"),
        standing.get("b", 0),
        standing["i"],
        standing.get("q", int(status in _ASKING)),
    )


def _tell_relatives(tx: Transaction, run_id: str, standing: dict[str, Any]) -> None:
    if "p" in standing:  # the parent is told in the transaction that ends its child
        tx.execute("UPDATE runs SET busy = 1 WHERE run_id = ? AND ended IS NULL", (standing["p"],))
    if "k" in standing:  # and open children that their parent is gone
        tx.execute("UPDATE runs SET busy = 1 WHERE parent = ? AND ended IS NULL", (run_id,))
    if "c" in standing:
        tx.execute(_WAIT_AS_CHILDREN.format("?"), (run_id,))  # its own row is held by what was written of it
    above = "?"
    for _ in range(standing.get("d", 0)):
        above = f"(SELECT parent FROM runs WHERE run_id = {above})"  # noqa: S608 - the words are ours
        tx.execute(_HOLD.format(above), (run_id,))
        tx.execute(_WAIT_AS_CHILDREN.format(above), (run_id,))


def _insert(tx: Transaction, run_id: str, record: Record, stands: Record) -> None:
    """A new run, standing as another record says that is written with its first one; in one statement, because each
    change of a standing changes indexes."""
    payload: dict[str, Any] = record.payload
    fork = record.attrs.get(FORK)
    parent = payload.get("parent") if fork is None else None
    tx.execute(
        _INSERT,
        (
            run_id,
            payload.get("owner", {}).get("tenant", ""),
            payload["workflowId"],
            int(parent is not None and not parent.get("detached")),
            payload.get("scopeId"),
            parent["runId"] if parent else None,
            fork["source"] if fork else None,
            canonical.encode(payload.get("tags", [])).decode(),
            fork["at"] if fork else record.ts,
            (parent.get("root") or parent["runId"]) if parent else run_id,
            *_columns(stands),
        ),
    )
    _tag(tx, run_id, payload.get("tags", []))


def _tag(tx: Transaction, run_id: str, tags: list[str]) -> None:
    if tags:
        sql = "INSERT INTO run_tags VALUES (?, ?) ON CONFLICT (tag, run_id) DO NOTHING"
        tx.executemany(sql, [(tag, run_id) for tag in tags])


class EnginesProjection:
    """Which engines are alive, by their last beat."""

    name = "engines"
    version = 1
    prefix = ENGINES
    schema = "CREATE TABLE engines (instance TEXT PRIMARY KEY, epoch BIGINT NOT NULL, until BIGINT NOT NULL)"

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            tx.execute(
                "INSERT INTO engines VALUES (?, ?, ?) "
                "ON CONFLICT (instance) DO UPDATE SET epoch = excluded.epoch, until = excluded.until",
                (record.stream[len(ENGINES) :], record.payload["epoch"], record.payload["until"]),
            )
