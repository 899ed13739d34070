"""Trusting what the project folder brings: what it is, its content hash, and a person's yes to exactly that."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forestay.console.parts import Parts, form_of, operator_of
from forestay.console.render import go
from forestay.kernel import Problem


async def show(request: Request, parts: Parts) -> Response:
    from forestay.extensions import brought

    operator_of(request)
    return parts.templates.page(request, "trust.html", view=await brought(parts.host.extensions))


async def give(request: Request, parts: Parts) -> Response:
    """Trust the content with this hash; when the folder has changed since, nothing is trusted."""
    caller = operator_of(request, "grants:manage")
    digest = form_of(request).get("digest", "")
    if not digest:
        raise Problem("schema_mismatch", "The hash of what is trusted is missing.", at="digest")
    await parts.host.extensions.give_trust(digest, by=caller.principal or caller.key_id)
    return go("/extensions?done=trusted")
