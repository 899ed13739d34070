"""Exports checkpoints to a file, and checks a ledger against such a file, offline.

The file has the format that OpenWOP's verifier reads. Keep it where nobody with access to the ledger can write; its
signatures can be checked without forestay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from forestay.kernel.ambient import iso
from forestay.kernel.audit_entries import Walk, entries
from forestay.kernel.audit_log import ANCHORED, CHECKPOINT, Anchor, SignedCheckpoint, is_anchored, stream_of
from forestay.kernel.checkpoint import Checkpoint, PublicKey, merkle_root
from forestay.kernel.ledger import Fault, Ledger
from forestay.kernel.ledger.records import Place
from forestay.kernel.policy import AUDIT
from forestay.kernel.problems import Problem

_PAGE = 1000


class BundleKey(msgspec.Struct, frozen=True, rename="camel"):
    key_id: str
    public_key: str = msgspec.field(name="publicKeyPEM")
    algorithm: Literal["ed25519"] = "ed25519"


class BundledCheckpoint(msgspec.Struct, frozen=True, rename="camel"):
    checkpoint_id: str
    at_sequence: int
    merkle_root: str
    signature: str
    signed_at: str
    signing_key_id: str


class CheckpointBundle(msgspec.Struct, frozen=True, rename="camel"):
    """All checkpoints that one key signed, with the key."""

    exported_at: str
    signing_key: BundleKey
    checkpoints: list[BundledCheckpoint]
    bundle_version: Literal["1"] = "1"


class BundleCheck(msgspec.Struct, frozen=True, rename="camel"):
    """The result of checking a ledger against a bundle: how much the bundle covers, and where they differ."""

    key_id: str
    checkpoints: int
    entries: int
    records: int
    faults: list[Fault]


async def export_checkpoints(ledger: Ledger, now_ms: int) -> CheckpointBundle:
    """Return the checkpoints of the key that signed last."""
    key = await _newest_key(ledger)
    if key is None:
        fix = "`forestay up` signs when it starts, every five minutes and when it stops."
        raise Problem("not_found", "This ledger has no signed checkpoint yet.", fix=fix)
    told = []
    start = 0
    while page := await ledger.read(stream_of(key), start, _PAGE):
        for record in page:
            if record.type == CHECKPOINT:
                made = msgspec.convert(record.payload, SignedCheckpoint)
                text = (made.checkpoint, made.at_sequence, made.merkle_root, made.signature)
                told.append(BundledCheckpoint(*text, iso(record.ts), key.id))
        start = page[-1].seq + 1
    return CheckpointBundle(iso(now_ms), BundleKey(key.id, key.pem), told)


async def _newest_key(ledger: Ledger) -> PublicKey | None:
    newest: tuple[int, str] | None = None
    for stream in await ledger.streams("checkpoint/"):
        for record in await ledger.read(stream, 0, 2, reverse=True):  # an anchor's mark may be the last
            if record.type == CHECKPOINT:
                newest = max(newest or (-1, ""), (record.ts, record.payload["publicKey"]))
    return PublicKey.read(newest[1]) if newest else None


async def check_bundle(ledger: Ledger, bundle: CheckpointBundle, key: PublicKey | None = None) -> BundleCheck:
    """Check a ledger with valid hash chains against a bundle; with `key`, trust only that key."""
    own = PublicKey.read(bundle.signing_key.public_key)
    if key is not None and key != own:
        message = "The checkpoints are signed with another key than the given one."
        raise Problem("chain_broken", message, keyId=key.id, signedWith=own.id)
    faults = [
        Fault(stream_of(own), item.at_sequence, "the checkpoint is not signed with its key")
        for item in bundle.checkpoints
        if not own.signed(item.merkle_root, item.signature)
    ]
    last = bundle.checkpoints[-1].at_sequence if bundle.checkpoints else -1
    if not faults:
        faults = await _other_entries(ledger, bundle, last)
    records = 0
    if not faults:
        records, faults = await _other_records(ledger, own, last)
    return BundleCheck(own.id, len(bundle.checkpoints), last + 1, records, faults)


async def _other_entries(ledger: Ledger, bundle: CheckpointBundle, last: int) -> list[Fault]:
    """Return where the audit log differs from the signed one."""
    signed = [
        Checkpoint(item.checkpoint_id, item.at_sequence, item.merkle_root, item.signature)
        for item in bundle.checkpoints
    ]
    walk = Walk(0, signed)
    async for entry in entries(ledger, 0, last):
        walk.take(entry)
    walk.end(last, None)
    broken = [Fault(AUDIT, item.at_seq, "the entry does not follow the one before it") for item in walk.anomalies]
    what = "the audit log up to here differs from the signed one"
    return broken + [Fault(AUDIT, item.at_sequence, what) for item in walk.forged]


async def _other_records(ledger: Ledger, key: PublicKey, last: int) -> tuple[int, list[Fault]]:
    """Count the records of all streams that the anchors cover; return where they differ from the anchored ones."""
    places = _places(ledger)
    count = 0
    async for anchor in _anchors(ledger, key, last):
        hashes: list[str] = []
        async for place in places:
            hashes.append(place.hash)
            if (place.stream, place.seq) == (anchor.stream, anchor.seq):
                break
        if len(hashes) != anchor.records or merkle_root(hashes) != anchor.merkle_root:
            what = f"one of the {anchor.records} records up to here differs from the signed one, or is gone"
            return count, [Fault(anchor.stream, anchor.seq, what)]
        count += len(hashes)
    return count, []


async def _anchors(ledger: Ledger, key: PublicKey, last: int) -> AsyncIterator[Anchor]:
    start = 0
    while page := await ledger.read(AUDIT, start, min(_PAGE, last + 1 - start)):
        for record in page:
            if record.type == ANCHORED and record.payload["keyId"] == key.id:
                yield msgspec.convert(record.payload, Anchor)
        start = page[-1].seq + 1
        if start > last:
            return


async def _places(ledger: Ledger) -> AsyncIterator[Place]:
    """Yield every record that anchors cover, in written order."""
    after = 0
    while page := await ledger.places(after, 10 * _PAGE):
        for place in page:
            if is_anchored(place.stream):
                yield place
        after = page[-1].position
