"""`Memories`: what agents and their operators keep between runs, and can forget (OpenWOP RFC 0004, 0057, 0080).

Invariants:

- M1  An entry's content is on disk only sealed under its own key.
- M2  When `forget` returns, the key is destroyed. The ledger keeps the event and a mark that nobody can check any more.
      No caller gets an entry whose forgetting is on record; after a crash in between, the next `start` finishes it.
- M3  An entry belongs to a tenant and a memoryRef. No other tenant reads, finds or forgets it.
- M4  No caller gets an expired entry, and the next sweep forgets it.
- M5  Putting an entry again under the same id returns the first entry, even one that was forgotten.
- M6  Secrets are removed from an entry before it is sealed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from forestay.kernel import (
    Append,
    Clock,
    Draft,
    Ids,
    Ledger,
    Problem,
    Randomness,
    SystemRandomness,
    redact_text,
)
from forestay.models import Embedder
from forestay.relay.memory_entry import KEY_BYTES, NOBODY, NONCE_BYTES, MemoryEntry, Origin, Sealed, seal, unseal
from forestay.relay.memory_index import FoundEntry, MemoryIndex
from forestay.relay.memory_table import NEVER, PREFIX

MAX_ENTRY_BYTES = 16 * 1024
MAX_PER_REF = 1_000
MAX_TAGS = 32
_TENANTS = 32  # tenants whose entries are held open
_COUNTED = 10_000  # memories with a known upper bound of their entries
_AT_ONCE = 100
_FEW = 4  # up to this number, entries are opened without another thread
_IDLE_SECONDS = 60.0
_KIND = "mem"
Why = Literal["requested", "expired", "made-room"]
_log = logging.getLogger("forestay.memory")


class Memories:
    """The memories of one ledger. `start` finishes what a crash interrupted and begins to sweep, `close` stops."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Clock,
        ids: Ids,
        randomness: Randomness | None = None,
        embedder: Embedder | None = None,
        shared: bool = False,
        blotted: Callable[[str, str], Awaitable[str]] | None = None,
    ) -> None:
        """`shared`: other processes keep memories in the same ledger. `blotted` removes a tenant's secrets from a text
        before it is kept."""
        self._ledger = ledger
        self._shared = shared
        self._vault = ledger.vault()
        self._clock = clock
        self._ids = ids
        self._randomness = randomness or SystemRandomness()
        self._embedder = embedder
        self._blotted = blotted
        self._open: OrderedDict[str, MemoryIndex] = OrderedDict()
        self._new: dict[str, dict[str, MemoryEntry]] = {}  # by tenant: entries that were put and are in no index yet
        self._leaving: set[str] = set()  # entries that are being forgotten
        self._at_most: dict[tuple[str, str], int] = {}  # by tenant and memoryRef: an upper bound of the entries
        self._woken = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    def capability(self) -> dict[str, Any]:
        """Return the entry for discovery (RFC 0080 §A)."""
        modes = ["filter", *(["semantic"] if self._embedder is not None else [])]
        return {
            "supported": True,
            "writable": True,
            "maxEntrySizeBytes": MAX_ENTRY_BYTES,
            "ttlSupported": True,
            "search": {"supported": True, "modes": modes},
            "retention": {"ttl": True, "forget": True},
            "attribution": {"supported": True, "emitsWriteEvents": True},
        }

    async def start(self) -> None:
        if self._ledger.read_only:
            return
        await self.mend()
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker

    async def mend(self) -> None:
        """Destroy the keys without an entry: it was forgotten or never written (M2). When the ledger is shared, a key
        without a record stays: another process may be about to write its entry."""
        names = await self._vault.names(f"{_KIND}_")
        rows = await self._ledger.query("SELECT doc FROM memory_entries") if names else []
        idle = sorted(set(names) - {_sealed(doc).key_name for (doc,) in rows})
        if self._shared:
            idle = [name for name in idle if (await self._ledger.head(PREFIX + name)).seq >= 0]
        await self._vault.destroy(idle)

    # Writing

    async def put(
        self,
        tenant: str,
        memory_ref: str,
        content: str,
        *,
        tags: Sequence[str] = (),
        expires_ms: int | None = None,
        origin: Origin = NOBODY,
        memory_id: str | None = None,
        make_room: bool = False,
        along: Callable[[Append], None] | None = None,
    ) -> Sealed:
        """Keep an entry; it is on disk when this returns. A caller that must not make two gives the id (M5). When the
        memory is full, `make_room` forgets its oldest entry. With `along`, the caller writes the record with others."""
        name = memory_id or self._ids.new(_KIND)
        if known := await self._ledger.read(PREFIX + name, 0, 1):
            return _own(known[0].payload, tenant)
        if self._blotted is not None:
            content = await self._blotted(tenant, content)
        content = redact_text(content)
        _check(content, tags)
        await self._room(tenant, memory_ref, make_room)
        labels = tuple(dict.fromkeys(redact_text(tag) for tag in tags if tag))
        entry = MemoryEntry(name, memory_ref, content, labels, self._clock.now_ms(), expires_ms, origin)
        key_name, key = await self._key(name)
        sealed = seal(entry, tenant, key, self._randomness.bytes(NONCE_BYTES), key_name)
        kept = Append(PREFIX + name, [Draft("memory.kept", msgspec.to_builtins(sealed))], expect=-1)
        if along is not None:
            self._new.setdefault(tenant, {})[name] = entry
            along(kept)
            return sealed
        try:
            await self._ledger.commit(kept)
        except Problem as problem:
            if problem.key != "ledger_conflict":
                raise
            known = await self._ledger.read(PREFIX + name, 0, 1)
            there = msgspec.convert(known[0].payload, Sealed)
            if there.key_name != key_name:  # the new key is not needed
                await self._vault.destroy([key_name])
            return _own(known[0].payload, tenant)
        if tenant in self._open:
            self._new.setdefault(tenant, {})[name] = entry
        self._woken.set()
        return sealed

    async def _key(self, name: str) -> tuple[str, bytes]:
        """Return a key for an entry and the key's name; in a shared ledger, `mend` needs it to be the entry's id."""
        if self._shared:
            return name, await self._vault.keep(name, self._randomness.bytes(KEY_BYTES))
        return await self._vault.fresh(f"{_KIND}_", self._randomness)

    async def _room(self, tenant: str, memory_ref: str, make_room: bool) -> None:
        """Refuse an entry over a memory's limit, or make room for it. The bound does not go down when entries are
        forgotten, so the entries are counted again when the bound reaches the limit."""
        of = "FROM memory_entries WHERE tenant = ? AND memory_ref = ?"
        at_most = self._at_most.get((tenant, memory_ref), MAX_PER_REF)
        if self._shared or at_most >= MAX_PER_REF:
            ((at_most,),) = await self._ledger.look_up(f"SELECT count(*) {of}", (tenant, memory_ref))
        if len(self._at_most) >= _COUNTED:
            self._at_most.clear()
        self._at_most[tenant, memory_ref] = at_most + 1
        full = at_most + 1 - MAX_PER_REF
        if full <= 0:
            return
        if not make_room:
            message = "This memory is full."
            raise Problem("state_conflict", message, limit=MAX_PER_REF, fix="Forget some of them.")
        rows = await self._ledger.query(
            f"SELECT memory_id {of} ORDER BY created_ms, memory_id LIMIT ?",
            (tenant, memory_ref, full),
        )
        await self._forget([memory_id for (memory_id,) in rows], "made-room")

    # Reading

    async def get(self, tenant: str, memory_id: str) -> MemoryEntry:
        """Return one entry; raise `not_found` for a forgotten or expired one, and for another tenant's."""
        found = await self.several(tenant, [memory_id])
        if not found:
            raise Problem("not_found", "There is no such memory.", memoryId=memory_id[:128])
        return found[0]

    async def several(self, tenant: str, ids: Sequence[str]) -> list[MemoryEntry]:
        """Return those of a few entries that exist, in the order of `ids`."""
        now = self._clock.now_ms()
        known = self._open[tenant].known if tenant in self._open else {}
        found = {name: known[name] for name in ids if name in known and self._is_there(known[name], now)}
        asked = [name for name in ids if name not in found]
        if asked:
            places = ", ".join("?" * len(asked))
            rows = await self._ledger.look_up(
                f"SELECT memory_id, doc FROM memory_entries WHERE memory_id IN ({places}) AND tenant = ? AND expires_ms > ?",  # noqa: S608, E501
                (*asked, tenant, now),
            )
            found |= {name: known[name] for name, _ in rows if name in known}
            closed = [doc for name, doc in rows if name not in known]
            found |= {entry.id: entry for entry in await self._opened(closed)}
        return [found[name] for name in ids if name in found]

    def _is_there(self, entry: MemoryEntry, now: int) -> bool:
        """Whether an open entry certainly still exists: no process is forgetting it, and it has not expired (M2)."""
        is_kept = not self._shared and entry.id not in self._leaving
        return is_kept and (entry.expires_ms is None or entry.expires_ms > now)

    async def listed(
        self, tenant: str, memory_ref: str | None = None, tag: str | None = None, limit: int | None = None
    ) -> list[MemoryEntry]:
        """List a tenant's entries, the newest first."""
        index = await self._index(tenant)
        return index.listed(memory_ref, tag, self._clock.now_ms())[:limit]

    async def search(
        self, tenant: str, query: str, memory_ref: str | None = None, tag: str | None = None, limit: int = 10
    ) -> list[FoundEntry]:
        """Return the entries that answer `query` best."""
        index = await self._index(tenant)
        async with index.turn:
            return await index.search(query, memory_ref, tag, limit, self._clock.now_ms())

    async def _index(self, tenant: str) -> MemoryIndex:
        """Return the index with the tenant's current entries."""
        index = self._open.setdefault(tenant, MemoryIndex(self._embedder))
        self._open.move_to_end(tenant)
        while len(self._open) > _TENANTS:
            self._open.popitem(last=False)
        async with index.turn:
            new = self._new.setdefault(tenant, {})
            if self._shared or not index.is_whole or len(new) > _AT_ONCE:
                await self._fill(tenant, index)
            elif new:  # nobody else writes, and what this process forgot is in no index (M2)
                places = ", ".join("?" * len(new))
                rows = await self._ledger.look_up(
                    f"SELECT memory_id FROM memory_entries WHERE memory_id IN ({places}) ORDER BY memory_id",  # noqa: S608
                    tuple(new),
                )
                index.add([new[name] for (name,) in rows if name in new])
            for name in index.known.keys() & new.keys():  # the rest is not written yet
                del new[name]
        return index

    async def _fill(self, tenant: str, index: MemoryIndex) -> None:
        """Bring the index up to date: open the tenant's entries that it lacks, drop those that no longer exist."""
        rows = await self._ledger.query(
            "SELECT memory_id FROM memory_entries WHERE tenant = ? AND expires_ms > ? ORDER BY memory_id",
            (tenant, self._clock.now_ms()),
        )
        wanted = index.missing([memory_id for (memory_id,) in rows])
        for at in range(0, len(wanted), _AT_ONCE):
            group = wanted[at : at + _AT_ONCE]
            places = ", ".join("?" * len(group))
            look = self._ledger.look_up if len(group) <= _FEW else self._ledger.query
            docs = await look(
                f"SELECT doc FROM memory_entries WHERE memory_id IN ({places}) ORDER BY memory_id",  # noqa: S608
                group,
            )
            found = await self._opened([doc for (doc,) in docs])
            if len(found) <= _FEW:
                index.add(found)
            else:
                await asyncio.to_thread(index.add, found)
        index.is_whole = True

    async def _opened(self, docs: Sequence[str]) -> list[MemoryEntry]:
        """Open the entries whose keys exist; an entry without its key is forgotten (M2)."""
        sealed = [_sealed(doc) for doc in docs]
        keys = await self._vault.get([item.key_name for item in sealed]) if sealed else {}
        return [unseal(item, keys[item.key_name]) for item in sealed if item.key_name in keys]

    # Forgetting

    async def forget(self, tenant: str, memory_id: str, *, by: Origin = NOBODY) -> None:
        """Forget one entry forever (M2)."""
        rows = await self._ledger.look_up(
            "SELECT memory_id FROM memory_entries WHERE memory_id = ? AND tenant = ?", (memory_id, tenant)
        )
        if not rows:
            raise Problem("not_found", "There is no such memory.", memoryId=memory_id[:128])
        await self._forget([memory_id], "requested", by)

    async def forget_all(
        self, tenant: str, memory_ref: str | None = None, tag: str | None = None, *, by: Origin = NOBODY
    ) -> int:
        """Forget every entry of a memory, of a tag, or of both; return their number."""
        if memory_ref is None and tag is None:
            raise Problem("schema_mismatch", "Name a memory, a tag or both.", at="$")
        found = [entry.id for entry in await self.listed(tenant, memory_ref, tag)]
        await self._forget(found, "requested", by)
        return len(found)

    async def _forget(self, names: Sequence[str], why: Why, by: Origin = NOBODY) -> None:
        self._leaving.update(names)
        try:
            await self._forget_all(names, why, by)
        finally:
            if names:
                self._open.clear()  # nothing of the entries stays in this process either
            self._leaving.difference_update(names)

    async def _forget_all(self, names: Sequence[str], why: Why, by: Origin) -> None:
        for at in range(0, len(names), _AT_ONCE):
            group = names[at : at + _AT_ONCE]
            places = ", ".join("?" * len(group))
            docs = await self._ledger.look_up(
                f"SELECT doc FROM memory_entries WHERE memory_id IN ({places})",  # noqa: S608
                group,
            )
            await asyncio.gather(*(self._record_end(name, why, by) for name in group))
            await self._vault.destroy([_sealed(doc).key_name for (doc,) in docs])
        for new in self._new.values():
            for name in new.keys() & set(names):
                del new[name]

    async def _record_end(self, name: str, why: Why, by: Origin) -> None:
        said = {"memoryId": name, "reason": why, "by": msgspec.to_builtins(by)}
        try:
            await self._ledger.append(PREFIX + name, [Draft("memory.forgotten", said)], expect=0)
        except Problem as problem:
            if problem.key != "ledger_conflict":  # on a conflict, it was forgotten meanwhile
                raise

    async def sweep(self) -> float:
        """Forget expired entries; return the seconds until the next sweep (M4)."""
        now = self._clock.now_ms()
        while rows := await self._ledger.query(
            "SELECT memory_id FROM memory_entries WHERE expires_ms <= ? ORDER BY expires_ms, memory_id LIMIT ?",
            (now, _AT_ONCE),
        ):
            await self._forget([memory_id for (memory_id,) in rows], "expired")
        first = await self._ledger.query(
            "SELECT expires_ms FROM memory_entries WHERE expires_ms < ? ORDER BY expires_ms LIMIT 1", (NEVER,)
        )
        return min(_IDLE_SECONDS, (first[0][0] - now) / 1000) if first else _IDLE_SECONDS

    async def _work(self) -> None:
        while True:
            self._woken.clear()
            try:
                wait = await self.sweep()
            except Problem as problem:  # a fault of the disk; no caller gets expired entries anyway (M4)
                _log.error("expired memories are not forgotten yet: %s", problem.message)
                wait = _IDLE_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()


def _sealed(doc: str) -> Sealed:
    return msgspec.json.decode(doc, type=Sealed)


def _own(payload: Any, tenant: str) -> Sealed:
    """Return the entry on record under an id; refuse another tenant's, since callers may choose ids (M3)."""
    found = msgspec.convert(payload, Sealed)
    if found.tenant != tenant:
        raise Problem("state_conflict", "This id is taken.", memoryId=found.memory_id)
    return found


def _check(content: str, tags: Sequence[str]) -> None:
    size = len(content.encode("utf-8", "surrogatepass"))
    if not content.strip():
        raise Problem("schema_mismatch", "An entry must have a content.", at="$.content")
    if size > MAX_ENTRY_BYTES:
        message = f"An entry has at most {MAX_ENTRY_BYTES} bytes; this one has {size}."
        raise Problem("schema_mismatch", message, at="$.content", limit=MAX_ENTRY_BYTES)
    if len(tags) > MAX_TAGS or any(len(tag) > 256 for tag in tags):
        message = f"An entry has at most {MAX_TAGS} tags of at most 256 characters."
        raise Problem("schema_mismatch", message, at="$.tags", limit=MAX_TAGS)
