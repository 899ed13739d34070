"""Families of the contract that this host does not provide: it answers them with 501 (W15)."""

from __future__ import annotations

import re

from starlette.requests import Request

from forestay.kernel import Problem

_FAMILIES = {
    "packs": r"/v1/packs.*",
    "workspace": r"/v1/host/workspace/files(/.*)?",
    "mcp": r"/v1/mcp(/.*)?",
    "a2a": r"/v1/a2a(/.*)?",
}
_PATTERNS = {family: re.compile(pattern, re.DOTALL) for family, pattern in _FAMILIES.items()}


def unmatched(request: Request) -> Problem:
    """Return the problem of a path without an operation: a family that is off, or nothing."""
    path: str = request.scope["path"]
    for family, pattern in _PATTERNS.items():
        if pattern.fullmatch(path):
            return Problem(
                "capability_not_provided",
                f"This host does not provide {family}.",
                capability=family,
                fix="See /.well-known/openwop for what it provides.",
            )
    return Problem("not_found", "There is nothing at this address.", fix="See /v1/openapi.json for what there is.")
