"""The ledger's table of memory entries. A forgotten entry's row is deleted; it held only sealed bytes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forestay.kernel import Record, Transaction

PREFIX = "memory/"
NEVER = 1 << 62
"""The expiry of an entry that does not expire."""


class MemoryTable:
    """Projects the streams `memory/…`; each stream is one entry."""

    name = "memory"
    version = 1
    prefix = PREFIX
    schema = """
        CREATE TABLE memory_entries (
            memory_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, memory_ref TEXT NOT NULL, created_ms BIGINT NOT NULL,
            expires_ms BIGINT NOT NULL, doc TEXT NOT NULL
        );
        CREATE INDEX memory_owners ON memory_entries (tenant, memory_ref, created_ms);
        CREATE INDEX memory_ends ON memory_entries (expires_ms)
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            said = record.payload
            if record.type == "memory.kept":
                tx.execute(
                    "INSERT INTO memory_entries VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        said["memoryId"],
                        said["tenant"],
                        said["memoryRef"],
                        said["createdAt"],
                        said.get("expiresAt", NEVER),
                        msgspec.json.encode(said).decode(),
                    ),
                )
            elif record.type == "memory.forgotten":
                tx.execute("DELETE FROM memory_entries WHERE memory_id = ?", (said["memoryId"],))
