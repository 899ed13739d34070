"""Reads the audit log as a chain of entries, and finds broken links and checkpoints (OpenWOP `AuditVerifyResult`).

An entry is a record of the stream `audit`. It has the hash of the entry before it; its own hash is in the next entry,
or in the stream's head.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from forestay.kernel.checkpoint import Checkpoint, merkle_root
from forestay.kernel.ledger import Ledger
from forestay.kernel.ledger.records import GENESIS, link
from forestay.kernel.policy import AUDIT

_PAGE = 1000
_STREAM = msgspec.json.encode(AUDIT)
_ROWS = """
    SELECT seq, id, type, ts, payload, attrs, hash FROM records
    WHERE stream = (SELECT id FROM streams WHERE name = ?) AND seq >= ? AND seq <= ? ORDER BY seq LIMIT ?
"""


class Entry(msgspec.Struct, frozen=True):
    """One entry: `digest` is the hash of its present content, `hash` the stored one."""

    seq: int
    prev: str
    digest: str
    hash: str


class Anomaly(msgspec.Struct, frozen=True, rename="camel"):
    """An entry without the hash of the entry before it; an empty hash means that an entry is missing."""

    at_seq: int
    expected_prev_hash: str
    actual_prev_hash: str


async def entries(ledger: Ledger, first: int, last: int) -> AsyncIterator[Entry]:
    """Yield the existing entries from `first` to `last`."""
    before = await ledger.query(_ROWS, (AUDIT, first - 1, first - 1, 1))
    prev: bytes = before[0][-1] if before else GENESIS
    while rows := await ledger.query(_ROWS, (AUDIT, first, last, _PAGE)):
        for entry in await asyncio.to_thread(_linked, rows, prev):
            yield entry
        first, prev = rows[-1][0] + 1, rows[-1][-1]


def _linked(rows: Sequence[tuple[Any, ...]], prev: bytes) -> list[Entry]:
    found = []
    for seq, id, type, ts, payload, attrs, hash in rows:
        digest, _ = link(_STREAM, seq, id, type, ts, payload, attrs or b"{}", prev)
        found.append(Entry(seq, prev.hex(), digest.hex(), hash.hex()))
        prev = hash
    return found


class Walk:
    """A walk along the log: takes each entry in order, and collects the links and checkpoints that do not hold.

    `checkpoints` are those on the walk; the walk begins right after the checkpoint before them.
    """

    def __init__(self, first: int, checkpoints: Sequence[Checkpoint]) -> None:
        self.anomalies: list[Anomaly] = []
        self.forged: list[Checkpoint] = []
        self._next = first
        self._last: Entry | None = None
        self._ahead = list(reversed(checkpoints))
        self._leaves: list[str] = []

    def take(self, entry: Entry) -> None:
        if entry.seq != self._next:
            self.anomalies.append(Anomaly(entry.seq, entry.prev, ""))
        elif entry.digest != entry.hash:
            self.anomalies.append(Anomaly(entry.seq + 1, entry.digest, entry.hash))
        while self._ahead and self._ahead[-1].at_sequence < entry.seq:
            self.forged.append(self._ahead.pop())  # its last entry is missing
            self._leaves = []
        self._leaves.append(entry.digest)
        if self._ahead and self._ahead[-1].at_sequence == entry.seq:
            signed = self._ahead.pop()
            if merkle_root(self._leaves) != signed.merkle_root:
                self.forged.append(signed)
            self._leaves = []
        self._next, self._last = entry.seq + 1, entry

    def end(self, seq: int, hash: str | None) -> None:
        """End the walk at `seq`; `hash` is the head's hash, if the log ends there too."""
        last = self._last
        if self._next <= seq:
            self.anomalies.append(Anomaly(self._next, last.digest if last else GENESIS.hex(), ""))
        elif last is not None and hash is not None and last.digest == last.hash != hash:
            self.anomalies.append(Anomaly(seq + 1, last.digest, hash))
        self.forged += reversed(self._ahead)  # signed, but their entries are gone
        self._ahead = []
