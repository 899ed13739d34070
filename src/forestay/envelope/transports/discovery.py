"""Documents at well-known paths: cached by ETag, and the older LAFS document that points to its successor (§1.10)."""

from __future__ import annotations

import hashlib
from email.utils import formatdate
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from forestay.envelope.transports.operations import Operations
from forestay.envelope.types import SPEC_VERSION
from forestay.kernel import Problem

CARD_PATH: Final = "/.well-known/agent-card.json"
LEGACY_PATH: Final = "/.well-known/lafs.json"
MAX_AGE_S: Final = 3600
_SCHEMA: Final = "https://lafs.dev/schemas/v1/discovery.schema.json"


def document_route(path: str, document: dict[str, Any], headers: dict[str, str] | None = None) -> Route:
    """Serve `document` by GET and HEAD with an ETag: 304 when the client has it, 405 for other methods."""
    body = msgspec.json.encode(document)
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    sent = {"ETag": etag, "Cache-Control": f"public, max-age={MAX_AGE_S}", **(headers or {})}

    async def endpoint(request: Request) -> Response:
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if etag in known or "*" in known:
            return Response(status_code=304, headers=sent)
        return Response(body, headers=sent, media_type="application/json")

    return Route(path, endpoint, methods=["GET", "HEAD"])


def legacy_route(
    operations: Operations,
    *,
    name: str,
    version: str,
    envelope_path: str = "/operations",
    context_path: str | None = None,
    deprecated_s: int,
    sunset_s: int,
) -> Route:
    """Serve the discovery document of earlier versions; its headers date its removal (RFC 9745, RFC 8594)."""
    if sunset_s <= deprecated_s:
        raise Problem("config_invalid", "A document is removed after it is deprecated.", at="sunset_s")
    names = [operation.name[:50] for operation in operations]
    endpoints = {"envelope": envelope_path, "discovery": LEGACY_PATH}
    if context_path is not None:
        endpoints["context"] = context_path
    document = {
        "$schema": _SCHEMA,
        "lafs_version": SPEC_VERSION,
        "service": {"name": name, "version": version},
        "capabilities": [{"name": "operations", "version": version, "operations": names}],
        "endpoints": endpoints,
    }
    headers = {
        "Deprecation": f"@{deprecated_s}",
        "Sunset": formatdate(sunset_s, usegmt=True),
        "Link": f'<{CARD_PATH}>; rel="successor-version"',
    }
    return document_route(LEGACY_PATH, document, headers)
