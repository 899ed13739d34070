"""The test seams of memory under `/v1/host/sample/`: the four operations of RFC 0004, through the production store."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from forestay.host import Host
from forestay.kernel import Problem, moment_of
from forestay.relay import Origin, ShownEntry
from forestay.surface.hostapi.memory import MemoryRef, Tag
from forestay.surface.operations import Body, Call, Operations, Query, View

_PATH = "/v1/host/sample/memory"
_REF = "sample"
api = Operations[Host](tag="seams", scopes=("runs:create",))


class SampleEntry(Body, frozen=True):
    content: Annotated[str, Meta(min_length=1)]
    memory_ref: MemoryRef = _REF
    tags: list[Tag] = field(default_factory=list)
    expires_at: str | None = None


class SampleWritten(View, frozen=True):
    memory_ref: str
    memory_id: str


class SampleList(Query, frozen=True):
    memory_ref: MemoryRef = _REF
    tag: Tag | None = None
    limit: Annotated[int, Meta(ge=0, le=1000)] = 0


class SampleOne(Query, frozen=True):
    memory_ref: MemoryRef = _REF


class SampleEntries(View, frozen=True):
    memory_ref: str
    entries: list[ShownEntry]


class SampleFound(View, frozen=True):
    memory_ref: str
    entry: ShownEntry


class SampleRemoved(View, frozen=True):
    memory_ref: str
    memory_id: str
    removed: bool


@api.post(_PATH, "seams.memory-put", {201: SampleWritten}, problems=("schema_mismatch", "state_conflict"))
async def put(host: Host, call: Call, body: SampleEntry) -> SampleWritten:
    """`MemoryAdapter.put`."""
    expires = None if body.expires_at is None else moment_of(body.expires_at, "$.expiresAt")
    kept = await host.memories.put(
        call.tenant,
        body.memory_ref,
        body.content,
        tags=body.tags,
        expires_ms=expires,
        origin=Origin(principal=call.caller.principal),
        memory_id=call.id_for("mem"),
    )
    return SampleWritten(memory_ref=kept.memory_ref, memory_id=kept.memory_id)


@api.get(_PATH, "seams.memory-list", SampleEntries)
async def listed(host: Host, call: Call, query: SampleList) -> SampleEntries:
    """`MemoryAdapter.list`: the newest first; a limit of 0 is none."""
    found = await host.memories.listed(call.tenant, query.memory_ref, query.tag, query.limit or None)
    return SampleEntries(memory_ref=query.memory_ref, entries=[entry.shown for entry in found])


@api.get(f"{_PATH}/{{memoryId}}", "seams.memory-get", SampleFound)
async def get(host: Host, call: Call, query: SampleOne) -> SampleFound:
    """`MemoryAdapter.get`."""
    found = await host.memories.get(call.tenant, call.path["memoryId"])
    if found.memory_ref != query.memory_ref:
        raise Problem("not_found", "There is no such memory.", memoryId=call.path["memoryId"][:128])
    return SampleFound(memory_ref=found.memory_ref, entry=found.shown)


@api.delete(f"{_PATH}/{{memoryId}}", "seams.memory-delete", SampleRemoved)
async def delete(host: Host, call: Call, query: SampleOne) -> SampleRemoved:
    """`MemoryAdapter.delete`: forgets the entry for good."""
    found = await get(host, call, query)
    await host.memories.forget(call.tenant, found.entry.id, by=Origin(principal=call.caller.principal))
    return SampleRemoved(memory_ref=found.memory_ref, memory_id=found.entry.id, removed=True)
