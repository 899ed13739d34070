"""The audit log as a row of linked entries, and what does not hold of it (OpenWOP `AuditVerifyResult`).

An entry is a record of the stream `audit`. It carries the hash of the entry before it, and the entry behind it, or the
stream's head, carries its own.
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
    """One entry: `digest` is the hash of what it says now, `hash` the one that it was written with."""

    seq: int
    prev: str
    digest: str
    hash: str


class Anomaly(msgspec.Struct, frozen=True, rename="camel"):
    """An entry that does not carry the hash of the entry before it; an empty hash says that an entry is missing."""

    at_seq: int
    expected_prev_hash: str
    actual_prev_hash: str


async def entries(ledger: Ledger, first: int, last: int) -> AsyncIterator[Entry]:
    """The entries with these sequences that are there."""
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
    """A walk along the log: takes each entry in its turn, and knows which links and which checkpoints do not hold.

    `checkpoints` are those that the walk passes, and it begins behind the one before them.
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
            self.forged.append(self._ahead.pop())  # the entry that it ends with is not there
            self._leaves = []
        self._leaves.append(entry.digest)
        if self._ahead and self._ahead[-1].at_sequence == entry.seq:
            signed = self._ahead.pop()
            if merkle_root(self._leaves) != signed.merkle_root:
                self.forged.append(signed)
            self._leaves = []
        self._next, self._last = entry.seq + 1, entry

    def end(self, seq: int, hash: str | None) -> None:
        """The walk ends with `seq`; `hash` is what the head says of it, where the log ends too."""
        last = self._last
        if self._next <= seq:
            self.anomalies.append(Anomaly(self._next, last.digest if last else GENESIS.hex(), ""))
        elif last is not None and hash is not None and last.digest == last.hash != hash:
            self.anomalies.append(Anomaly(seq + 1, last.digest, hash))
        self.forged += reversed(self._ahead)  # signed, and not there any more
        self._ahead = []
