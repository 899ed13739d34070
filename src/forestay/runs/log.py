"""A run's log: how events become records of the ledger, and the tables that these records keep.

The short keys of a record's attributes are known here and nowhere else. The last event of each batch carries the run's
standing, which the `runs` table is told in the same transaction: a status and its event change together (OpenWOP §1.8).

- G1  The title and the words of a run are those of its inputs. A run that hides something has neither, from the record
      on that says so: a list must not show, and a search must not answer, what the run's own page masks.
- G2  A run counts what it used itself: not what the history of a fork used, and nothing for a replay.

A delivery to a webhook is put into the outbox by the transaction that writes the event it is about: an event that is on
disk has its deliveries, whatever dies next. The history that a fork takes over from its source was told before, and is
not told again: it is older than the fork.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from forestay.kernel import Append, Draft, Queue, Record, Transaction, canonical, former, iso
from forestay.runs.secrets import TELLING
from forestay.runs.spending import cost_of
from forestay.runs.state import WAITING, Event, RunState
from forestay.runs.types import ENGINE_VERSION, TERMINAL, TERMINAL_EVENTS, RunEvent

PREFIX = "run/"
ENGINES = "engine/"
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
    fork, tags = record.attrs.get(FORK), payload.get("tags", [])
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
            canonical.encode(tags).decode() if tags else "[]",
            fork["at"] if fork else record.ts,
            (parent.get("root") or parent["runId"]) if parent else run_id,
            *_columns(stands),
        ),
    )
    _tag(tx, run_id, tags)


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


# What lists of runs show beside where each stands

TITLE_LENGTH = 200
WORDS_LENGTH = 2000
_TITLED = ("question", "task", "title", "prompt", "message", "text", "objective", "name")
_NEVER = 2**53  # a replay performs nothing, so nothing of it counts
_HIDDEN = ("outputs", "next", "value", "overlay")  # what a record keeps in its private part when it is not shown


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
                _insert_digest(tx, run_id, record)
            elif record.type == "provider.usage":
                _count(tx, run_id, record)
            if record.type == "forestay.run.forked":
                _retitle(tx, run_id, (record.payload.get("overlay") or {}).get("inputs") or {})
            if record.type in TELLING and _hides(record):
                tx.execute("UPDATE run_digests SET title = '', words = '' WHERE run_id = ?", (run_id,))


def _insert_digest(tx: Transaction, run_id: str, record: Record) -> None:
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


# Webhooks: which events each one wants, and what is still to be delivered

# The events for a run's `callbackUrl`: questions for people, and the end.
CALLBACK_EVENTS = frozenset({"node.suspended", *TERMINAL_EVENTS})
_BEGINNINGS = frozenset({"run.started", "forestay.run.forked"})  # they say who the run's events are for
# The same event for the same receiver has the same id, however often it is sent.
_DELIVERY = "'whd_' || substr(digest({0}, r.run_id, ?), 1, 24)"
_DUE = "CAST(? AS BIGINT), CAST(? AS TEXT)"
# What a record owes: to each webhook that asked for its type and for one of the run's tags or for all, and to the run's
# own callback address. Their values are the sequence as a text, sequence, type and time; run and time; and the type.
_TO_WEBHOOKS = f"""
    INSERT INTO webhook_outbox (delivery_id, webhook_id, tenant, run_id, sequence, type, due_ms)
    SELECT DISTINCT {_DELIVERY.format("t.webhook_id")}, t.webhook_id, r.tenant, r.run_id, {_DUE}, CAST(? AS BIGINT)
    FROM webhook_runs r JOIN webhook_types t ON t.tenant = r.tenant
    WHERE r.run_id = ? AND r.since <= ? AND t.type = ? AND (t.tag = '' OR EXISTS
        (SELECT 1 FROM webhook_run_tags g WHERE g.run_id = r.run_id AND g.tag = t.tag))
    ON CONFLICT (delivery_id) DO NOTHING
"""  # noqa: S608 - the words are ours
_TO_CALLBACK = f"""
    INSERT INTO webhook_outbox (delivery_id, webhook_id, tenant, run_id, sequence, type, due_ms, url)
    SELECT {_DELIVERY.format("'callback'")}, 'callback', r.tenant, r.run_id, {_DUE}, CAST(? AS BIGINT), r.callback
    FROM webhook_runs r WHERE r.run_id = ? AND r.since <= ? AND r.callback IS NOT NULL
    ON CONFLICT (delivery_id) DO NOTHING
"""  # noqa: S608 - the words are ours
# As `_TO_WEBHOOKS`, of a run that has no tags and is in no table. The values are the run, the sequence as a text, the
# run, sequence, type and time; tenant and type.
_TO_WEBHOOKS_AT_ONCE = f"""
    INSERT INTO webhook_outbox (delivery_id, webhook_id, tenant, run_id, sequence, type, due_ms)
    SELECT 'whd_' || substr(digest(t.webhook_id, CAST(? AS TEXT), ?), 1, 24), t.webhook_id, t.tenant, CAST(? AS TEXT),
        {_DUE}, CAST(? AS BIGINT)
    FROM webhook_types t WHERE t.tenant = ? AND t.type = ? AND t.tag = ''
    ON CONFLICT (delivery_id) DO NOTHING
"""  # noqa: S608 - the words are ours


class Outbox:
    """The tables `webhooks`, `webhook_types`, `webhook_runs`, `webhook_run_tags` and `webhook_outbox`."""

    name = "webhooks"
    version = 2
    prefix = ("run/", "webhook/")
    schema = """
        CREATE TABLE webhooks (
            webhook_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, doc TEXT NOT NULL, secret_version BIGINT NOT NULL,
            rotated_ms BIGINT
        );
        CREATE TABLE webhook_types (
            type TEXT NOT NULL, tenant TEXT NOT NULL, webhook_id TEXT NOT NULL, tag TEXT NOT NULL,
            PRIMARY KEY (type, tenant, webhook_id, tag)
        );
        CREATE TABLE webhook_runs (
            run_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, callback TEXT, since BIGINT NOT NULL
        );
        CREATE INDEX webhook_callbacks ON webhook_runs (run_id) WHERE callback IS NOT NULL;
        CREATE TABLE webhook_run_tags (run_id TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (run_id, tag));
        CREATE TABLE webhook_outbox (
            delivery_id TEXT PRIMARY KEY, webhook_id TEXT NOT NULL, tenant TEXT NOT NULL, run_id TEXT NOT NULL,
            sequence BIGINT NOT NULL, type TEXT NOT NULL, url TEXT, state TEXT NOT NULL DEFAULT 'due',
            due_ms BIGINT NOT NULL, attempts BIGINT NOT NULL DEFAULT 0, error TEXT
        );
        CREATE INDEX webhook_due ON webhook_outbox (state, due_ms);
        CREATE INDEX webhook_of ON webhook_outbox (webhook_id, state)
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        family, _, name = records[0].stream.partition("/")
        if family == "run" and _is_whole(records):
            _whole_run(tx, name, records)
        elif family == "run":
            _run_events(tx, name, records)
        elif family == "webhook":
            for record in records:
                if (handler := _HANDLERS.get(record.type)) is not None:
                    handler(tx, name, record)


def _is_whole(records: Sequence[Record]) -> bool:
    """Whether these are all of a run that tells nobody but webhooks for every run."""
    first, between, last = records[0], records[1:-1], records[-1]
    if first.type != "run.started" or last.type not in TERMINAL_EVENTS or FORK in first.attrs:
        return False
    if first.payload.get("callbackUrl") is not None or first.payload.get("tags"):
        return False
    return not any(record.type in TERMINAL_EVENTS or record.type in _BEGINNINGS for record in between)


def _whole_run(tx: Transaction, run_id: str, records: Sequence[Record]) -> None:
    """A run that begins and ends in one batch needs no row that says who its events are for."""
    tenant = (records[0].payload.get("owner") or {}).get("tenant", "")
    tx.executemany(
        _TO_WEBHOOKS_AT_ONCE,
        [(run_id, str(item.seq), run_id, item.seq, item.type, item.ts, tenant, item.type) for item in records],
    )


def _run_events(tx: Transaction, run_id: str, records: Sequence[Record]) -> None:
    """Put what webhooks are owed into the outbox, by one statement for all records between two that change who is."""
    owed: list[tuple[Any, ...]] = []
    for record in records:
        if record.type in _BEGINNINGS:
            _deliver(tx, owed)
            _begin_telling(tx, run_id, record)
        due = (str(record.seq), record.seq, record.type, record.ts, run_id, record.ts)
        owed.append((*due, record.type))
        if record.type in CALLBACK_EVENTS:
            tx.execute(_TO_CALLBACK, due)
        if record.type in TERMINAL_EVENTS:
            _deliver(tx, owed)
            tx.execute("DELETE FROM webhook_runs WHERE run_id = ?", (run_id,))
            tx.execute("DELETE FROM webhook_run_tags WHERE run_id = ?", (run_id,))
    _deliver(tx, owed)


def _deliver(tx: Transaction, owed: list[tuple[Any, ...]]) -> None:
    if owed:
        tx.executemany(_TO_WEBHOOKS, owed)
        owed.clear()


def _begin_telling(tx: Transaction, run_id: str, record: Record) -> None:
    if record.type == "run.started":
        payload = record.payload
        tenant, since = (payload.get("owner") or {}).get("tenant", ""), (record.attrs.get(FORK) or {}).get("at", 0)
        tx.execute(
            "INSERT INTO webhook_runs VALUES (?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING",
            (run_id, tenant, payload.get("callbackUrl"), since),
        )
        _tag_webhook(tx, run_id, payload.get("tags") or [])
    if record.type == "forestay.run.forked" and (tags := overlaid_tags(record)) is not None:
        tx.execute("DELETE FROM webhook_run_tags WHERE run_id = ?", (run_id,))
        _tag_webhook(tx, run_id, tags)


def _tag_webhook(tx: Transaction, run_id: str, tags: list[str]) -> None:
    if tags:
        sql = "INSERT INTO webhook_run_tags VALUES (?, ?) ON CONFLICT (run_id, tag) DO NOTHING"
        tx.executemany(sql, [(run_id, tag) for tag in tags])


def _registered(tx: Transaction, webhook: str, record: Record) -> None:
    doc: dict[str, Any] = record.payload
    tx.execute("INSERT INTO webhooks VALUES (?, ?, ?, ?, NULL)", (webhook, doc["tenant"], json.dumps(doc), 1))
    tags = [tag for tag in doc["tags"] if tag] if doc.get("tags") else [""]  # '': whatever the run's tags are
    tx.executemany(
        "INSERT INTO webhook_types VALUES (?, ?, ?, ?) ON CONFLICT (type, tenant, webhook_id, tag) DO NOTHING",
        [(type, doc["tenant"], webhook, tag) for type in doc["events"] for tag in tags],
    )


def _rotated(tx: Transaction, webhook: str, record: Record) -> None:
    tx.execute(
        "UPDATE webhooks SET secret_version = ?, rotated_ms = ? WHERE webhook_id = ?",
        (record.payload["secretVersion"], record.ts, webhook),
    )


def _removed(tx: Transaction, webhook: str, record: Record) -> None:
    for table in ("webhooks", "webhook_types", "webhook_outbox"):
        tx.execute(f"DELETE FROM {table} WHERE webhook_id = ?", (webhook,))  # noqa: S608 - three names of ours


def _delivered(tx: Transaction, webhook: str, record: Record) -> None:
    tx.execute("DELETE FROM webhook_outbox WHERE delivery_id = ?", (record.payload["deliveryId"],))


def _failed(tx: Transaction, webhook: str, record: Record) -> None:
    payload = record.payload
    tx.execute(
        "UPDATE webhook_outbox SET state = ?, due_ms = ?, attempts = ?, error = ? WHERE delivery_id = ?",
        (
            "due" if payload["nextMs"] is not None else "dead",
            payload["nextMs"] or record.ts,
            payload["attempt"],
            payload["error"],
            payload["deliveryId"],
        ),
    )


def _retried(tx: Transaction, webhook: str, record: Record) -> None:
    tx.execute(
        "UPDATE webhook_outbox SET state = 'due', due_ms = ?, attempts = 0 WHERE delivery_id = ? AND state = 'dead'",
        (record.ts, record.payload["deliveryId"]),
    )


_HANDLERS = {
    "webhook.registered": _registered,
    "webhook.rotated": _rotated,
    "webhook.removed": _removed,
    "webhook.delivered": _delivered,
    "webhook.failed": _failed,
    "webhook.retried": _retried,
}
