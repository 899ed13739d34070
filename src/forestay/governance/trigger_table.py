"""The tables of subscriptions and of the queue of their deliveries."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forestay.kernel import Record, Transaction

PREFIX = "trigger/"
_COLUMNS = ("subscriptionId", "tenant", "source", "state")


class TriggerTable:
    """Projects the streams `trigger/…`."""

    name = "triggers"
    version = 2
    prefix = PREFIX
    schema = """
        CREATE TABLE trigger_subscriptions (
            subscription_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, source TEXT NOT NULL, state TEXT NOT NULL,
            doc TEXT NOT NULL
        );
        CREATE INDEX trigger_tenants ON trigger_subscriptions (tenant);
        CREATE INDEX trigger_sources ON trigger_subscriptions (source, state);
        CREATE TABLE trigger_deliveries (
            delivery_id TEXT PRIMARY KEY, subscription_id TEXT NOT NULL, tenant TEXT NOT NULL, dedup_key TEXT NOT NULL,
            state TEXT NOT NULL, attempts BIGINT NOT NULL, due_ms BIGINT NOT NULL, received_ms BIGINT NOT NULL,
            seq BIGINT NOT NULL, run_id TEXT, error TEXT
        );
        CREATE INDEX trigger_due ON trigger_deliveries (state, due_ms);
        CREATE INDEX trigger_newest ON trigger_deliveries (tenant, received_ms);
        CREATE INDEX trigger_keys ON trigger_deliveries (subscription_id, dedup_key, received_ms)
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            self._take(tx, record)

    def _take(self, tx: Transaction, record: Record) -> None:
        said = record.payload
        if record.type == "trigger.subscription":
            kept = said["subscription"]
            tx.execute(
                "INSERT INTO trigger_subscriptions VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (subscription_id) DO UPDATE SET state = excluded.state, doc = excluded.doc",
                (*(kept[name] for name in _COLUMNS), msgspec.json.encode(kept).decode()),
            )
        elif record.type == "trigger.removed":
            ended = (said["subscriptionId"],)
            tx.execute("DELETE FROM trigger_subscriptions WHERE subscription_id = ?", ended)
            tx.execute(
                "UPDATE trigger_deliveries SET state = 'dead', error = 'not_found' "
                "WHERE subscription_id = ? AND state = 'due'",
                ended,
            )
        elif record.type == "trigger.received":
            row = (said["deliveryId"], said["subscriptionId"], said["tenant"], said["dedupKey"])
            tx.execute(
                "INSERT INTO trigger_deliveries VALUES (?, ?, ?, ?, 'due', 0, ?, ?, ?, NULL, NULL)",
                (*row, record.ts, record.ts, record.seq),
            )
        elif record.type in ("trigger.delivery.attempted", "trigger.redriven"):
            tx.execute(
                "UPDATE trigger_deliveries SET state = ?, attempts = ?, due_ms = ?, run_id = ?, error = ? "
                "WHERE delivery_id = ?",
                (
                    said["state"],
                    said["attempt"],
                    said["dueAt"],
                    said.get("runId"),
                    said.get("error"),
                    said["deliveryId"],
                ),
            )
