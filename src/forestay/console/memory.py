"""Memory: find and forget what agents keep between runs."""

from __future__ import annotations

from starlette.responses import Response

from forestay.console.render import go
from forestay.console.visit import Visit, form, page
from forestay.relay import Origin

_SHOWN = 50
_LONGEST = 4096


@page("/memory", "memory", "workspace:read")
async def listing(visit: Visit) -> Response:
    """The tenant's newest entries, or those that answer what was asked."""
    memories = visit.host.memories
    query, memory_ref = visit.asked("q")[:_LONGEST].strip(), visit.asked("ref") or None
    if query:
        entries = [item.entry for item in await memories.search(visit.tenant, query, memory_ref, limit=_SHOWN)]
    else:
        entries = await memories.listed(visit.tenant, memory_ref, limit=_SHOWN)
    return visit.page("memory.html", entries=entries, query=query, memory_ref=memory_ref)


@form("/memory/{memoryId}/forget", "memory.forget", "workspace:write")
async def forget(visit: Visit) -> Response:
    """Forget an entry for good."""
    by = Origin(principal=visit.caller.principal)
    await visit.host.memories.forget(visit.tenant, visit.path["memoryId"], by=by)
    return go("/memory")
