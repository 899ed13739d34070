"""Context ledgers on the kernel's ledger: one stream `context/<id>` each (R25 to R29).

- S1  A mutation names the version it was made for; another version is refused, and of two at once one wins (R26).
- S2  A failed step is recorded and keeps the version.
- S3  Only its owner sees a context, until it expires (R31).
- S4  Beyond `maxEntries` the older half is compacted; a caller that asks for it gets `context_compacted`.
- S5  `checksum` is a chain: the hash of the previous checksum and the entry, so that a follower can check its deltas.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from typing import Any

import msgspec

from forestay.envelope.build import error_of
from forestay.envelope.context import deltas
from forestay.envelope.context.types import Context, Entry, LedgerDocument
from forestay.kernel import Append, Clock, Draft, Ids, Ledger, Problem, Record, canonical, iso

MAX_ENTRIES = 1000
_CACHED = 256
_ID = re.compile(r"[A-Za-z0-9._:@~-]{1,128}")


class Held(msgspec.Struct):
    """One context ledger, folded up to the record `seq`."""

    ledger_id: str
    owner: str
    max_entries: int
    expires_ms: int | None
    created_ms: int
    updated_ms: int
    context: Context
    checksum: str
    entries: list[Entry] = []
    compacted: int = 0
    seq: int = 0

    @property
    def entry_count(self) -> int:
        return len(self.entries)

    def document(self) -> LedgerDocument:
        return LedgerDocument(
            ledger_id=self.ledger_id,
            version=self.context.version,
            created_at=iso(self.created_ms),
            updated_at=iso(self.updated_ms),
            entries=list(self.entries),
            checksum=self.checksum,
            max_entries=self.max_entries,
        )


class ContextStore:
    """Opens, reads and changes context ledgers."""

    def __init__(self, ledger: Ledger, clock: Clock, ids: Ids) -> None:
        self._ledger = ledger
        self._clock = clock
        self._ids = ids
        self._cache: OrderedDict[str, Held] = OrderedDict()

    async def open(
        self,
        objective: str,
        *,
        owner: str,
        constraints: list[Any] | None = None,
        ledger_id: str | None = None,
        max_entries: int = MAX_ENTRIES,
        lifetime_ms: int | None = None,
    ) -> Held:
        """Start a context ledger at version 0."""
        ledger_id = ledger_id or self._ids.new("ctx")
        if not _ID.fullmatch(ledger_id) or max_entries < 1:
            raise Problem("schema_mismatch", "A ledger id is 1 to 128 plain characters.", at="$.ledgerId")
        payload = {
            "owner": owner,
            "maxEntries": max_entries,
            "expiresMs": None if lifetime_ms is None else self._clock.now_ms() + lifetime_ms,
            "context": Context(objective=objective, constraints=constraints or []),
        }
        try:
            await self._ledger.append(_stream(ledger_id), [Draft("context.opened", payload)], expect=-1)
        except Problem as problem:
            if problem.key == "ledger_conflict":
                raise Problem("already_exists", f"The context {ledger_id} exists.", ledgerId=ledger_id) from problem
            raise
        return await self._held(ledger_id)

    async def get(self, ledger_id: str, *, owner: str) -> Held:
        """Return the ledger if it exists, has not expired and belongs to `owner`."""
        if not _ID.fullmatch(ledger_id):
            raise _not_found(ledger_id)
        held = await self._held(ledger_id)
        if held.owner != owner:
            raise Problem("context_unauthorized", "This context belongs to somebody else.", ledgerId=ledger_id)
        if held.expires_ms is not None and self._clock.now_ms() >= held.expires_ms:
            raise Problem(
                "context_expired", "The context has expired.", ledgerId=ledger_id, expiredAt=iso(held.expires_ms)
            )
        return held

    async def mutate(
        self,
        ledger_id: str | None,
        operation: str,
        delta: dict[str, Any],
        *,
        owner: str,
        version: int | None,
        request_id: str | None = None,
    ) -> Held:
        """Apply a change that was made for `version`; the new version is exactly one higher."""
        held = await self._for_change(ledger_id, owner, version)
        after = deltas.apply(held.context, delta)
        entry = self._entry(operation, delta, after.version, request_id)
        await self._append(held, entry)
        return await self._held(held.ledger_id)

    async def fail(
        self,
        ledger_id: str,
        operation: str,
        problem: Problem,
        *,
        owner: str,
        request_id: str | None = None,
    ) -> Held:
        """Record a step that failed; the version stays (S2)."""
        held = await self.get(ledger_id, owner=owner)
        error: dict[str, Any] = msgspec.to_builtins(error_of(problem))
        entry = self._entry(operation, {}, held.context.version, request_id)
        await self._append(held, msgspec.structs.replace(entry, error=error))
        return await self._held(ledger_id)

    async def _for_change(self, ledger_id: str | None, owner: str, version: int | None) -> Held:
        """R29: a change without its context fails, and says what is missing."""
        if ledger_id is None or version is None:
            missing = [name for name, value in (("ledgerId", ledger_id), ("version", version)) if value is None]
            raise Problem("context_missing", "This step changes a context and did not say which.", missing=missing)
        held = await self.get(ledger_id, owner=owner)
        current = held.context.version
        if version < 0 or version > current:
            raise Problem(
                "context_version_invalid", f"The context has no version {version}.", given=version, current=current
            )
        if version < current:
            raise Problem(
                "context_stale", "The context has changed since that version.", given=version, current=current
            )
        return held

    def _entry(self, operation: str, delta: dict[str, Any], version: int, request_id: str | None) -> Entry:
        if not 1 <= len(operation) <= 128:
            raise Problem("out_of_range", "An operation has 1 to 128 characters.", at="$.operation")
        return Entry(
            entry_id=self._ids.new("ent"),
            timestamp=iso(self._clock.now_ms()),
            operation=operation,
            context_delta=delta,
            version=version,
            request_id=msgspec.UNSET if request_id is None else request_id,
        )

    async def _append(self, held: Held, entry: Entry) -> None:
        drafts = [Draft("context.entry", entry)]
        if len(held.entries) + 1 > held.max_entries:
            kept = held.max_entries // 2
            drafts.append(Draft("context.compacted", {"kept": kept}))
        try:
            await self._ledger.commit(Append(_stream(held.ledger_id), drafts, expect=held.seq))
        except Problem as problem:
            if problem.key == "ledger_conflict":
                raise Problem(
                    "context_version_conflict",
                    "Another change to this context came first.",
                    retry_after_ms=100,
                    ledgerId=held.ledger_id,
                ) from problem
            raise

    async def _held(self, ledger_id: str) -> Held:
        held = self._cache.get(ledger_id)
        records = await self._ledger.read(_stream(ledger_id), 0 if held is None else held.seq + 1)
        if held is None and not records:
            raise _not_found(ledger_id)
        for record in records:
            held = fold(ledger_id, held, record)
        assert held is not None
        self._cache[ledger_id] = held
        self._cache.move_to_end(ledger_id)
        while len(self._cache) > _CACHED:
            self._cache.popitem(last=False)
        return held


def fold(ledger_id: str, held: Held | None, record: Record) -> Held:
    """Return the ledger after one more record; `held` stays unchanged."""
    payload = record.payload
    if held is None:
        return Held(
            ledger_id=ledger_id,
            owner=payload["owner"],
            max_entries=payload["maxEntries"],
            expires_ms=payload["expiresMs"],
            created_ms=record.ts,
            updated_ms=record.ts,
            context=msgspec.convert(payload["context"], Context),
            checksum=_digest(ledger_id.encode()),
            seq=record.seq,
        )
    if record.type == "context.compacted":
        gone = held.entries[: len(held.entries) - payload["kept"]]
        return msgspec.structs.replace(
            held, entries=held.entries[len(gone) :], compacted=gone[-1].version, seq=record.seq
        )
    entry = msgspec.convert(payload, Entry)
    accepted = entry.error is msgspec.UNSET
    return msgspec.structs.replace(
        held,
        updated_ms=record.ts,
        context=deltas.apply(held.context, entry.context_delta) if accepted else held.context,
        checksum=chain(held.checksum, entry),
        entries=[*held.entries, entry],
        seq=record.seq,
    )


def chain(checksum: str, entry: Entry) -> str:
    """Return the checksum after `entry` (S5)."""
    return _digest(checksum.encode() + canonical.encode(entry))


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _stream(ledger_id: str) -> str:
    return f"context/{ledger_id}"


def _not_found(ledger_id: str) -> Problem:
    return Problem("context_not_found", "There is no such context ledger.", ledgerId=ledger_id[:128])
