"""The `runs` and `engines` tables: a status and its event change in one transaction (OpenWOP §1.8)."""

from __future__ import annotations

from typing import Any

from forestay.kernel import Record, Transaction, canonical
from forestay.runs.log import FORK, PREFIX, STANDING, overlaid_tags
from forestay.runs.types import TERMINAL

ENGINES = "engine/"


class RunsProjection:
    """One row a run. `busy` and `wake` are what a sweep needs to find work after a restart."""

    name = "runs"
    version = 3
    prefix = PREFIX
    schema = """
        CREATE TABLE runs (
            run_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, workflow_id TEXT NOT NULL, status TEXT NOT NULL,
            scope_id TEXT, parent TEXT, source TEXT, tags TEXT NOT NULL, created BIGINT NOT NULL,
            updated BIGINT NOT NULL, ended BIGINT, error TEXT, wake BIGINT, busy BIGINT NOT NULL, instance TEXT
        );
        CREATE TABLE run_tags (tag TEXT NOT NULL, run_id TEXT NOT NULL, PRIMARY KEY (tag, run_id));
        CREATE INDEX run_tags_of ON run_tags (run_id);
        CREATE INDEX runs_tenant ON runs (tenant, run_id);
        CREATE INDEX runs_status ON runs (tenant, status);
        CREATE INDEX runs_wake ON runs (wake) WHERE wake IS NOT NULL;
        CREATE INDEX runs_busy ON runs (run_id) WHERE busy = 1;
        CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL
    """

    def apply(self, tx: Transaction, record: Record) -> None:
        run_id = record.stream[len(PREFIX) :]
        if record.seq == 0:
            self._insert(tx, run_id, record)
        if (tags := overlaid_tags(record)) is not None:
            tx.execute("UPDATE runs SET tags = ? WHERE run_id = ?", (canonical.encode(tags).decode(), run_id))
            tx.execute("DELETE FROM run_tags WHERE run_id = ?", (run_id,))
            _tag(tx, run_id, tags)
        standing = record.attrs.get(STANDING)
        if standing is None:
            return
        status = standing["st"]
        ended = record.ts if status in TERMINAL else None
        tx.execute(
            "UPDATE runs SET status = ?, updated = ?, ended = ?, error = ?, wake = ?, busy = ?, instance = ? "
            "WHERE run_id = ?",
            (
                status,
                record.ts,
                ended,
                standing.get("e"),
                standing.get("w"),
                standing.get("b", 0),
                standing["i"],
                run_id,
            ),
        )
        if "p" in standing:  # the parent is told in the transaction that ends its child
            tx.execute("UPDATE runs SET busy = 1 WHERE run_id = ? AND ended IS NULL", (standing["p"],))
        if "k" in standing:  # and open children that their parent is gone
            tx.execute("UPDATE runs SET busy = 1 WHERE parent = ? AND ended IS NULL", (run_id,))

    def _insert(self, tx: Transaction, run_id: str, record: Record) -> None:
        payload: dict[str, Any] = record.payload
        fork = record.attrs.get(FORK)
        parent = payload.get("parent") if fork is None else None
        tx.execute(
            "INSERT INTO runs VALUES (?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, NULL, NULL, NULL, 1, NULL)",
            (
                run_id,
                payload.get("owner", {}).get("tenant", ""),
                payload["workflowId"],
                payload.get("scopeId"),
                parent["runId"] if parent else None,
                fork["source"] if fork else None,
                canonical.encode(payload.get("tags", [])).decode(),
                fork["at"] if fork else record.ts,
                record.ts,
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
    schema = """
        CREATE TABLE engines (
            instance TEXT PRIMARY KEY, epoch BIGINT NOT NULL, until BIGINT NOT NULL
        )
    """

    def apply(self, tx: Transaction, record: Record) -> None:
        tx.execute(
            "INSERT INTO engines VALUES (?, ?, ?) "
            "ON CONFLICT (instance) DO UPDATE SET epoch = excluded.epoch, until = excluded.until",
            (record.stream[len(ENGINES) :], record.payload["epoch"], record.payload["until"]),
        )
