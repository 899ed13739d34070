"""Prompts: the templates that a tenant's nodes and agents may name."""

from __future__ import annotations

from starlette.responses import Response

from forestay.console.visit import Visit, page


@page("/prompts", "prompts", "manifest:read")
async def listing(visit: Visit) -> Response:
    """The newest version of each template, by id."""
    library = visit.host.prompts
    defaults = {ref.template_id: kind for kind, ref in library.defaults.items()}
    return visit.page("prompts.html", templates=await library.listed(visit.tenant), defaults=defaults)
