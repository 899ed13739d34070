"""`/host/v1/memory`: write, read, search and forget what agents and their operators keep between runs.

The contract has no portable path for a memory (RFC 0080 §B). The answer to a write never has the content: it may be
kept for a repeated request, and a forgotten entry must be in no record.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from forestay.host import Host
from forestay.kernel import Problem, iso, moment_of
from forestay.relay import FoundEntry, MemoryEntry, Origin
from forestay.surface.operations import Body, Call, Operations, Query, Result, View

_PATH = "/host/v1/memory"
_ONE = f"{_PATH}/{{memoryId}}"
MemoryRef = Annotated[str, Meta(min_length=1, max_length=256)]
Tag = Annotated[str, Meta(min_length=1, max_length=256)]
api = Operations[Host](scopes=("workspace:read",), contract="lafs", tag="memory")


class NewMemory(Body, frozen=True):
    """An entry. It lives until `expiresAt`, for `ttlSeconds`, or until it is forgotten."""

    memory_ref: MemoryRef
    content: Annotated[str, Meta(min_length=1)]
    tags: list[Tag] = field(default_factory=list)
    expires_at: str | None = None
    ttl_seconds: Annotated[int, Meta(ge=1, le=3_153_600_000)] | None = None


class WrittenMemory(Result, frozen=True):
    memory_id: str
    memory_ref: str
    created_at: str
    expires_at: str | None = None


class MemoryQuery(Query, frozen=True):
    """Which entries: of a memory, with a tag; with `q` those that answer it, the best first."""

    memory_ref: MemoryRef | None = None
    tag: Tag | None = None
    q: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class MemoryView(Result, frozen=True):
    """An entry, and who wrote it."""

    memory_id: str
    memory_ref: str
    content: str
    tags: list[str]
    created_at: str
    expires_at: str | None = None
    written_by: Origin = Origin()
    score: float | None = None


class MemoryList(View, frozen=True):
    memories: list[MemoryView]


class Subject(Body, frozen=True):
    """What is forgotten: every entry of a memory, with a tag, or both."""

    memory_ref: MemoryRef | None = None
    tag: Tag | None = None


class Forgotten(View, frozen=True):
    forgotten: int


@api.post(
    _PATH,
    "memory.put",
    {201: WrittenMemory},
    scopes=("workspace:write",),
    problems=("schema_mismatch", "state_conflict"),
)
async def put(host: Host, call: Call, body: NewMemory) -> WrittenMemory:
    """Keep an entry of the caller's tenant."""
    if body.expires_at is not None and body.ttl_seconds is not None:
        raise Problem("schema_mismatch", "Give expiresAt or ttlSeconds, not both.", at="$.ttlSeconds")
    expires = None if body.expires_at is None else moment_of(body.expires_at, "$.expiresAt")
    if body.ttl_seconds is not None:
        expires = host.clock.now_ms() + body.ttl_seconds * 1000
    kept = await host.memories.put(
        call.tenant,
        body.memory_ref,
        body.content,
        tags=body.tags,
        expires_ms=expires,
        origin=Origin(principal=call.caller.principal),
        memory_id=call.id_for("mem"),
    )
    return WrittenMemory(
        memory_id=kept.memory_id,
        memory_ref=kept.memory_ref,
        created_at=iso(kept.created_at),
        expires_at=None if kept.expires_at is None else iso(kept.expires_at),
    )


@api.get(_PATH, "memory.list", MemoryList)
async def listed(host: Host, call: Call, query: MemoryQuery) -> MemoryList:
    """The tenant's entries, the newest first; with `q` those that answer it, the best first."""
    asked = call.tenant, query.memory_ref, query.tag, query.limit
    if query.q is None:
        return MemoryList(memories=[view(entry) for entry in await host.memories.listed(*asked)])
    found = await host.memories.search(call.tenant, query.q, query.memory_ref, query.tag, query.limit)
    return MemoryList(memories=[_found(item) for item in found])


@api.get(_ONE, "memory.get", MemoryView)
async def get(host: Host, call: Call) -> MemoryView:
    """One entry; a forgotten one, an expired one and another tenant's are not there."""
    return view(await host.memories.get(call.tenant, call.path["memoryId"]))


@api.delete(_ONE, "memory.forget", {204: None}, scopes=("workspace:write",))
async def forget(host: Host, call: Call) -> None:
    """Forget one entry for good: its key is destroyed when the answer is sent."""
    by = Origin(principal=call.caller.principal)
    await host.memories.forget(call.tenant, call.path["memoryId"], by=by)


@api.post(
    f"{_PATH}:forget",
    "memory.forget-all",
    Forgotten,
    scopes=("workspace:write",),
    problems=("schema_mismatch",),
)
async def forget_all(host: Host, call: Call, body: Subject) -> Forgotten:
    """Forget every entry of a memory, with a tag, or both."""
    by = Origin(principal=call.caller.principal)
    return Forgotten(forgotten=await host.memories.forget_all(call.tenant, body.memory_ref, body.tag, by=by))


def view(entry: MemoryEntry, score: float | None = None) -> MemoryView:
    shown = entry.shown
    return MemoryView(
        memory_id=entry.id,
        memory_ref=entry.memory_ref,
        content=entry.content,
        tags=list(entry.tags),
        created_at=shown.created_at,
        expires_at=shown.expires_at,
        written_by=entry.origin,
        score=score,
    )


def _found(item: FoundEntry) -> MemoryView:
    return view(item.entry, item.score)
