"""The projection behind webhooks: who wants which events, and what is still to be delivered.

A delivery is put into the outbox by the transaction that writes the event it is about: an event that is on disk
has its deliveries, whatever dies next. The history that a fork takes over from its source was told before, and is
not told again: it is older than the fork.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import Any

from forestay.kernel import Record
from forestay.runs.log import FORK, overlaid_tags
from forestay.runs.types import TERMINAL_EVENTS

# What a run's `callbackUrl` is told: questions that somebody must answer, and the end.
CALLBACK_EVENTS = frozenset({"node.suspended", *TERMINAL_EVENTS})


def delivery_id(webhook: str, run_id: str, sequence: int) -> str:
    """The same event for the same receiver has the same id, however often it is sent."""
    return "whd_" + hashlib.sha256(f"{webhook}\0{run_id}\0{sequence}".encode()).hexdigest()[:24]


class Outbox:
    """Tables `webhooks`, `webhook_types`, `webhook_runs` and `webhook_outbox`."""

    name = "webhooks"
    version = 1
    prefix = ""
    schema = """
        CREATE TABLE webhooks (
            webhook_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, doc TEXT NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE webhook_types (
            type TEXT NOT NULL, tenant TEXT NOT NULL, webhook_id TEXT NOT NULL, tags TEXT NOT NULL,
            PRIMARY KEY (type, tenant, webhook_id)
        ) WITHOUT ROWID;
        CREATE TABLE webhook_runs (
            run_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, tags TEXT NOT NULL, callback TEXT, since INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX webhook_callbacks ON webhook_runs (run_id) WHERE callback IS NOT NULL;
        CREATE TABLE webhook_outbox (
            delivery_id TEXT PRIMARY KEY, webhook_id TEXT NOT NULL, tenant TEXT NOT NULL, run_id TEXT NOT NULL,
            sequence INTEGER NOT NULL, type TEXT NOT NULL, url TEXT, state TEXT NOT NULL, due_ms INTEGER NOT NULL,
            attempts INTEGER NOT NULL, error TEXT
        ) WITHOUT ROWID;
        CREATE INDEX webhook_due ON webhook_outbox (state, due_ms);
        CREATE INDEX webhook_of ON webhook_outbox (webhook_id, state);
    """
    reset = """
        DROP TABLE IF EXISTS webhooks; DROP TABLE IF EXISTS webhook_types; DROP TABLE IF EXISTS webhook_runs;
        DROP TABLE IF EXISTS webhook_outbox;
    """

    def apply(self, tx: sqlite3.Cursor, record: Record) -> None:
        family, _, name = record.stream.partition("/")
        if family == "run":
            _run_event(tx, name, record)
        elif family == "webhook":
            handler = _HANDLERS.get(record.type)
            if handler is not None:
                handler(tx, name, record)


def _run_event(tx: sqlite3.Cursor, run_id: str, record: Record) -> None:
    if record.type == "run.started":
        payload = record.payload
        tx.execute(
            "INSERT OR REPLACE INTO webhook_runs VALUES (?, ?, ?, ?, ?)",
            (
                run_id,
                (payload.get("owner") or {}).get("tenant", ""),
                json.dumps(payload.get("tags") or []),
                payload.get("callbackUrl"),
                (record.attrs.get(FORK) or {}).get("at", 0),
            ),
        )
    if (tags := overlaid_tags(record)) is not None:
        tx.execute("UPDATE webhook_runs SET tags = ? WHERE run_id = ?", (json.dumps(tags), run_id))
    wanted = tx.execute(
        "SELECT t.webhook_id, t.tags, r.tenant, r.tags FROM webhook_types t "
        "JOIN webhook_runs r ON r.run_id = ? AND r.tenant = t.tenant AND r.since <= ? WHERE t.type = ?",
        (run_id, record.ts, record.type),
    ).fetchall()
    for webhook_id, tags, tenant, run_tags in wanted:
        asked = set(json.loads(tags))
        if not asked or asked & set(json.loads(run_tags)):
            _put(tx, webhook_id, tenant, run_id, record, None)
    if record.type in CALLBACK_EVENTS:
        row = tx.execute(
            "SELECT tenant, callback FROM webhook_runs WHERE run_id = ? AND callback IS NOT NULL AND since <= ?",
            (run_id, record.ts),
        ).fetchone()
        if row is not None:
            _put(tx, "callback", row[0], run_id, record, row[1])
    if record.type in TERMINAL_EVENTS:
        tx.execute("DELETE FROM webhook_runs WHERE run_id = ?", (run_id,))


def _put(tx: sqlite3.Cursor, webhook: str, tenant: str, run_id: str, record: Record, url: str | None) -> None:
    tx.execute(
        "INSERT OR IGNORE INTO webhook_outbox VALUES (?, ?, ?, ?, ?, ?, ?, 'due', ?, 0, NULL)",
        (delivery_id(webhook, run_id, record.seq), webhook, tenant, run_id, record.seq, record.type, url, record.ts),
    )


def _registered(tx: sqlite3.Cursor, webhook: str, record: Record) -> None:
    doc: dict[str, Any] = record.payload
    tx.execute("INSERT INTO webhooks VALUES (?, ?, ?)", (webhook, doc["tenant"], json.dumps(doc)))
    tx.executemany(
        "INSERT OR IGNORE INTO webhook_types VALUES (?, ?, ?, ?)",
        [(type, doc["tenant"], webhook, json.dumps(doc.get("tags") or [])) for type in doc["events"]],
    )


def _rotated(tx: sqlite3.Cursor, webhook: str, record: Record) -> None:
    row = tx.execute("SELECT doc FROM webhooks WHERE webhook_id = ?", (webhook,)).fetchone()
    if row is None:  # another process removed it
        return
    doc = {**json.loads(row[0]), "secretVersion": record.payload["secretVersion"], "rotatedMs": record.ts}
    tx.execute("UPDATE webhooks SET doc = ? WHERE webhook_id = ?", (json.dumps(doc), webhook))


def _removed(tx: sqlite3.Cursor, webhook: str, record: Record) -> None:
    for table in ("webhooks", "webhook_types", "webhook_outbox"):
        tx.execute(f"DELETE FROM {table} WHERE webhook_id = ?", (webhook,))  # noqa: S608 - three names of ours


def _delivered(tx: sqlite3.Cursor, webhook: str, record: Record) -> None:
    tx.execute("DELETE FROM webhook_outbox WHERE delivery_id = ?", (record.payload["deliveryId"],))


def _failed(tx: sqlite3.Cursor, webhook: str, record: Record) -> None:
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


def _retried(tx: sqlite3.Cursor, webhook: str, record: Record) -> None:
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
