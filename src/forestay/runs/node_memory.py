"""`NodeMemory`: entries that a node stores and reads across runs (OpenWOP RFC 0004 §A).

- A write is an effect: it is made once, and the run's log records `memory.written` without the content (RFC 0057).
- A list is an effect whose result is ids: a replay reads the same entries, unless they are forgotten. No record of the
  run has their content.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forestay.runs.ports import MemorySource

if TYPE_CHECKING:
    from forestay.runs.execution import Execution

_LISTED = 100


class NodeMemory:
    """The four memory operations, for one execution of a node."""

    def __init__(self, ctx: Execution, source: MemorySource) -> None:
        self._ctx = ctx
        self._source = source
        self._calls = 0

    async def put(
        self, memory_ref: str, content: str, *, tags: Sequence[str] = (), expires_at: str | None = None
    ) -> str:
        """Store an entry; return its id."""
        key = self._key("put")
        caller = self._ctx.caller(key, "memory")

        async def write() -> str:
            return await self._source.put(caller, memory_ref, content, tags, expires_at)

        memory_id: str = await self._ctx.effect(key, write, provider="memory")
        told = {"memoryRef": memory_ref, "memoryId": memory_id, "nodeId": self._ctx.node_id}
        agent = (self._ctx.agent or {}).get("agentId")
        self._ctx.emit("memory.written", told | ({"agentId": agent} if isinstance(agent, str) else {}))
        return memory_id

    async def list(self, memory_ref: str, *, tag: str | None = None, limit: int = _LISTED) -> Sequence[dict[str, Any]]:
        """Return entries in the contract's shape, newest first."""
        key = self._key("list")
        caller = self._ctx.caller(key, "memory")
        ids: Sequence[str] = await self._ctx.effect(
            key, lambda: self._source.list(caller, memory_ref, tag, limit or _LISTED), provider="memory"
        )
        return await self._source.read(caller, memory_ref, ids)

    async def get(self, memory_ref: str, memory_id: str) -> dict[str, Any] | None:
        """Return one entry; None when it is forgotten, expired or another tenant's."""
        found = await self._source.read(self._ctx.caller("memory/get", "memory"), memory_ref, [memory_id])
        return found[0] if found else None

    async def delete(self, memory_ref: str, memory_id: str) -> bool:
        """Forget an entry for good; return whether it existed."""
        key = self._key("delete")
        caller = self._ctx.caller(key, "memory")
        return await self._ctx.effect(
            key, lambda: self._source.delete(caller, memory_ref, memory_id), provider="memory"
        )

    def _key(self, verb: str) -> str:
        self._calls += 1
        return f"memory/{self._calls}-{verb}"
