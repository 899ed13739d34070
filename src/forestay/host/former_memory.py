"""Imports, once, what agents of version 0.1 kept in the streams `context/TENANT/AGENT`.

The old records stay, as every record does: their plain text disappears only with the ledger.
"""

from __future__ import annotations

from forestay.host.memory import memory_id_of
from forestay.kernel import Draft, Ledger, Problem
from forestay.relay import Memories

_PREFIX = "context/"
_DONE = "former/memory"
_PAGE = 1_000


async def take_over(ledger: Ledger, memories: Memories) -> int:
    """Import each entry under the id that its agent would give it; return their number. A second call adds none."""
    if ledger.read_only or (await ledger.head(_DONE)).seq >= 0:
        return 0
    after, taken, seen = "", 0, False
    while names := list(await ledger.streams(_PREFIX, after=after, limit=_PAGE)):
        seen, after = True, names[-1]
        for name in names:
            taken += await _take(ledger, memories, name)
    if seen:
        try:
            await ledger.append(_DONE, [Draft("memory.taken_over", {"entries": taken})], expect=-1)
        except Problem as problem:
            if problem.key != "ledger_conflict":  # on a conflict, another host has done the same
                raise
    return taken


async def _take(ledger: Ledger, memories: Memories, stream: str) -> int:
    tenant, _, agent = stream.removeprefix(_PREFIX).partition("/")
    taken = start = 0
    while records := await ledger.read(stream, start, _PAGE):
        for record in records:
            if record.type == "memory.kept" and agent and isinstance(record.payload.get("entry"), str):
                own = memory_id_of(tenant, agent, str(record.payload.get("key", record.seq)))
                await memories.put(tenant, agent, record.payload["entry"], memory_id=own, make_room=True)
                taken += 1
        start = records[-1].seq + 1
    return taken
