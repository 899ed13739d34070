"""The projection behind webhooks: who wants which events, and what is still to be delivered.

A delivery is put into the outbox by the transaction that writes the event it is about: an event that is on disk
has its deliveries, whatever dies next. The history that a fork takes over from its source was told before, and is
not told again: it is older than the fork.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from forestay.kernel import Record, Transaction
from forestay.runs.log import FORK, overlaid_tags
from forestay.runs.types import TERMINAL_EVENTS

# What a run's `callbackUrl` is told: questions for people, and the end.
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
            _begin(tx, run_id, record)
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


def _begin(tx: Transaction, run_id: str, record: Record) -> None:
    if record.type == "run.started":
        payload = record.payload
        tenant, since = (payload.get("owner") or {}).get("tenant", ""), (record.attrs.get(FORK) or {}).get("at", 0)
        tx.execute(
            "INSERT INTO webhook_runs VALUES (?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING",
            (run_id, tenant, payload.get("callbackUrl"), since),
        )
        _tag(tx, run_id, payload.get("tags") or [])
    if record.type == "forestay.run.forked" and (tags := overlaid_tags(record)) is not None:
        tx.execute("DELETE FROM webhook_run_tags WHERE run_id = ?", (run_id,))
        _tag(tx, run_id, tags)


def _tag(tx: Transaction, run_id: str, tags: list[str]) -> None:
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
