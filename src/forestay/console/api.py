"""The operations of the host's own API, as its OpenAPI document lists them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forestay.console.parts import Parts, caller_of


async def show(request: Request, parts: Parts) -> Response:
    caller_of(request)
    return parts.templates.page(request, "api.html", operations=parts.operations)
