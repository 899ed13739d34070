"""`AuditLog`: the stream `audit` with signed checkpoints, which also cover every other stream.

- S1  One anchor covers each record of the ledger, in written order. An anchor is an entry `ledger.anchored` of the
      audit log with the Merkle root of the records' hashes.
- S2  Each entry of the audit log is covered by a checkpoint; no checkpoint covers more than `EVERY_ENTRIES`.
- S3  The checkpoints of a key have their own stream. A new key begins again with the first record.
- S4  Of several processes, one at a time signs; a second signature of the same state is refused (L4).
- S5  A broken log is not signed.

A checkpoint that is kept elsewhere shows whether the ledger was changed since, even by somebody with access to its
database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from forestay.kernel.ambient import Ids
from forestay.kernel.audit_entries import Anomaly, Walk, entries
from forestay.kernel.checkpoint import EVERY_ENTRIES, Checkpoint, PublicKey, SigningKey, merkle_root
from forestay.kernel.ledger import Append, Draft, Ledger, Locks
from forestay.kernel.ledger.records import Place
from forestay.kernel.policy import AUDIT
from forestay.kernel.problems import Problem

ANCHORED = "ledger.anchored"
CHECKPOINT = "audit.checkpoint"
MOST_RECORDS = 10_000  # covered by one anchor
_PAGE = 1000
_log = logging.getLogger("forestay.audit")


class Anchor(msgspec.Struct, frozen=True, rename="camel"):
    """Covers the records after the previous anchor, up to and including the named one."""

    key_id: str
    records: int
    merkle_root: str
    stream: str
    seq: int


class SignedCheckpoint(Checkpoint, frozen=True):
    """A checkpoint as it is stored in its stream."""

    public_key: str


class _Stand(msgspec.Struct, frozen=True):
    """The progress of a key: the head of its stream, the last signed entry and the last anchored record."""

    head: int = -1
    at_sequence: int = -1
    anchor: Anchor | None = None


class AuditVerdict(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a verification, the contract's `AuditVerifyResult`."""

    from_seq: int
    to_seq: int
    chain_valid: bool
    checkpoints_valid: bool
    checkpoints: list[Checkpoint]
    anomalies: list[Anomaly]


def stream_of(key: PublicKey) -> str:
    """Return the stream of the checkpoints that this key signed."""
    return f"checkpoint/{key.id}"


def is_anchored(stream: str) -> bool:
    """Whether anchors cover the stream: all but the audit log and the checkpoints themselves."""
    return stream != AUDIT and not stream.startswith("checkpoint/")


class AuditLog:
    """The audit log of one ledger, signed with the key made from `seed`."""

    def __init__(self, ledger: Ledger, seed: bytes, ids: Ids, locks: Locks | None = None) -> None:
        self._ledger = ledger
        self._key = SigningKey(seed)
        self._ids = ids
        self._locks = locks or Locks()
        self._turn = asyncio.Lock()
        self.key = self._key.public
        self.stream = stream_of(self.key)

    # Signing

    async def checkpoint(self, most_anchors: int = 10) -> bool:
        """Anchor and sign what is new; return whether more is left than `most_anchors` can cover."""
        async with self._turn, self._locks.attempt(self.stream) as is_ours:
            if not is_ours:
                return False  # another process is signing
            try:
                more = await self._anchor(most_anchors)
                await self._sign()
            except Problem as problem:
                if problem.key != "ledger_conflict":
                    raise
                return False  # another process has signed (S4)
            return more

    async def _stand(self) -> _Stand:
        """Return the key's progress, from the last record of its stream."""
        last = await self._ledger.read(self.stream, 0, 1, reverse=True)
        return msgspec.convert({**last[0].attrs, "head": last[0].seq}, _Stand) if last else _Stand()

    async def _anchor(self, most: int) -> bool:
        for _ in range(most):
            stand = await self._stand()
            places = await unanchored(self._ledger, await self._position(stand.anchor))
            if not places:
                return False
            made = await asyncio.to_thread(_anchor_of, self.key.id, places)
            told = [Draft(ANCHORED, msgspec.to_builtins(made))]
            mark = Draft(ANCHORED, {}, _attrs(stand.at_sequence, made))
            await self._ledger.commit(Append(AUDIT, told), Append(self.stream, [mark], stand.head))
        return True

    async def _position(self, anchor: Anchor | None) -> int:
        if anchor is None:
            return 0
        place = await self._ledger.place(anchor.stream, anchor.seq)
        if place is None:
            message = f"The anchored record {anchor.seq} of {anchor.stream} is gone."
            raise Problem("chain_broken", message, stream=anchor.stream, seq=anchor.seq)
        return place.position

    async def _sign(self) -> None:
        end = (await self._ledger.head(AUDIT)).seq
        while (stand := await self._stand()).at_sequence < end:
            last = min(end, stand.at_sequence + EVERY_ENTRIES)
            walk, leaves = Walk(stand.at_sequence + 1, ()), []
            async for entry in entries(self._ledger, stand.at_sequence + 1, last):
                walk.take(entry)
                leaves.append(entry.digest)
            walk.end(last, None)
            if walk.anomalies:  # S5
                at = walk.anomalies[0].at_seq
                raise Problem("chain_broken", f"The audit log's hash chain is broken at {at}.", stream=AUDIT, seq=at)
            root = merkle_root(leaves)
            made = SignedCheckpoint(self._ids.new("ckpt"), last, root, self._key.sign(root), self.key.text)
            draft = Draft(CHECKPOINT, msgspec.to_builtins(made), _attrs(last, stand.anchor))
            await self._ledger.append(self.stream, [draft], stand.head)

    # Verifying

    async def verify(self, first: int = 0, last: int | None = None) -> AuditVerdict:
        """Check the entries from `first` to `last`, and every checkpoint among them."""
        async with self._turn:
            head = await self._ledger.head(AUDIT)
            to = max(first, head.seq) if last is None else last
            signed = await checkpoints(self._ledger, self.key)
        among = [item for item in signed if first <= item.at_sequence <= to]
        before = [item.at_sequence for item in signed if item.at_sequence < first]
        begin = min(first, before[-1] + 1 if before else 0) if among else first
        walk, end = Walk(begin, among), min(to, head.seq)
        async for entry in entries(self._ledger, begin, end):
            walk.take(entry)
        walk.end(end, head.hash if end == head.seq else None)
        anomalies = [item for item in walk.anomalies if first <= item.at_seq <= to + 1]
        unsigned = [item for item in among if not self.key.signed(item.merkle_root, item.signature)]
        valid = not walk.forged and not unsigned
        return AuditVerdict(first, to, valid and not anomalies, valid, among, anomalies)


async def unanchored(ledger: Ledger, after: int) -> list[Place]:
    """Return the first records after a position that need an anchor."""
    while page := await ledger.places(after, MOST_RECORDS):
        if found := [item for item in page if is_anchored(item.stream)]:
            return found
        after = page[-1].position
    return []


async def checkpoints(ledger: Ledger, key: PublicKey) -> list[Checkpoint]:
    """Return the checkpoints that this key signed, oldest first."""
    found: list[Checkpoint] = []
    start = 0
    while page := await ledger.read(stream_of(key), start, _PAGE):
        told = [msgspec.convert(item.payload, Checkpoint) for item in page if item.type == CHECKPOINT]
        found += told
        start = page[-1].seq + 1
    return found


def _anchor_of(key_id: str, places: Sequence[Place]) -> Anchor:
    last = places[-1]
    return Anchor(key_id, len(places), merkle_root([item.hash for item in places]), last.stream, last.seq)


def _attrs(at_sequence: int, anchor: Anchor | None) -> dict[str, object]:
    """Return the key's progress as attributes, for the next signing."""
    return {"at_sequence": at_sequence, "anchor": msgspec.to_builtins(anchor)}
