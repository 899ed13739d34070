"""The memory of agents and of nodes, over the memories of the ledger.

Y1  An entry is kept once for its key, however often it is remembered.
Y2  Memory belongs to a tenant and an agent; no other reads it.
Y3  What is recalled is bounded: the best few are given. Where a memory is full, its oldest entry makes room.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from forestay.agents import Kept
from forestay.kernel import Append, moment_of
from forestay.models import STOP, words
from forestay.relay import Memories, Origin
from forestay.runs import Caller

_RECALLED = 5
_LONGEST = 4_000


class AgentMemory:
    """`agents.Memory` of the agent that a run's node works as; `memory_ref` is the agent's own unless a node says.

    What is remembered is written by `along`, together with what the run says next.
    """

    def __init__(
        self, memories: Memories, caller: Caller, along: Callable[[Append], None], memory_ref: str | None = None
    ) -> None:
        self._memories = memories
        self._caller = caller
        self._along = along
        self._memory_ref = memory_ref

    async def recall(self, agent_id: str, task: str) -> Sequence[str]:
        found = await self._memories.search(self._caller.tenant, task, self._memory_ref or agent_id, limit=_RECALLED)
        return [item.entry.id for item in found]

    async def read(self, ids: Sequence[str]) -> Sequence[str]:
        return [entry.content for entry in await self._memories.several(self._caller.tenant, ids)]

    async def remember(self, agent_id: str, entry: str, *, idempotency_key: str) -> Kept:
        caller = self._caller
        ref = self._memory_ref or agent_id
        kept = await self._memories.put(
            caller.tenant,
            ref,
            entry[:_LONGEST],
            origin=Origin(caller.principal, caller.run_id, caller.node_id, agent_id),
            memory_id=memory_id_of(caller.tenant, ref, idempotency_key),
            make_room=True,
            along=self._along,
        )
        return Kept(kept.memory_ref, kept.memory_id)


class NodeMemories:
    """`runs.MemorySource`: what nodes of the host's runs keep."""

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    async def put(
        self, caller: Caller, memory_ref: str, content: str, tags: Sequence[str], expires_at: str | None
    ) -> str:
        kept = await self._memories.put(
            caller.tenant,
            memory_ref,
            content,
            tags=tags,
            expires_ms=None if expires_at is None else moment_of(expires_at, "$.expiresAt"),
            origin=Origin(caller.principal, caller.run_id, caller.node_id),
            memory_id=memory_id_of(caller.tenant, memory_ref, caller.idempotency_key),
        )
        return kept.memory_id

    async def list(self, caller: Caller, memory_ref: str, tag: str | None, limit: int) -> Sequence[str]:
        found = await self._memories.listed(caller.tenant, memory_ref, tag, limit)
        return [entry.id for entry in found]

    async def read(self, caller: Caller, memory_ref: str | None, ids: Sequence[str]) -> Sequence[dict[str, Any]]:
        return await _entries(self._memories, caller.tenant, ids, memory_ref)

    async def delete(self, caller: Caller, memory_ref: str, memory_id: str) -> bool:
        if not await _entries(self._memories, caller.tenant, [memory_id], memory_ref):
            return False
        by = Origin(caller.principal, caller.run_id, caller.node_id)
        await self._memories.forget(caller.tenant, memory_id, by=by)
        return True


class SeededMemory:
    """`agents.Memory` of a task that is evaluated: it knows what it was given, and keeps nothing."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = entries

    async def recall(self, agent_id: str, task: str) -> Sequence[str]:
        """The entries that share the most words with the task; of equals, the later ones."""
        wanted = _content(task)
        scored = [(len(wanted & _content(entry)), place) for place, entry in enumerate(self._entries)]
        return [str(place) for shared, place in sorted(scored, reverse=True)[:_RECALLED] if shared]

    async def read(self, ids: Sequence[str]) -> Sequence[str]:
        return [self._entries[int(place)] for place in ids]

    async def remember(self, agent_id: str, entry: str, *, idempotency_key: str) -> None:
        """The next task begins without it."""


async def _entries(
    memories: Memories, tenant: str, ids: Sequence[str], memory_ref: str | None = None
) -> list[dict[str, Any]]:
    """The entries in the contract's shape; what was forgotten, and what is another's, is left out."""
    found = await memories.several(tenant, ids)
    return [msgspec.to_builtins(entry.shown) for entry in found if memory_ref in (None, entry.memory_ref)]


def memory_id_of(tenant: str, memory_ref: str, key: str) -> str:
    """The same for the same write, so that it is made once (Y1)."""
    return "mem_" + hashlib.sha256("\0".join((tenant, memory_ref, key)).encode()).hexdigest()[:26]


def _content(text: str) -> frozenset[str]:
    return frozenset(word for word in words(text) if word not in STOP)
