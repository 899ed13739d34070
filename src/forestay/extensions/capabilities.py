"""What a host call needs and what it is about, derived from the call alone (Pi §3.2, §3.2A).

- C1  A call's capability follows from its method and parameters; a claim of the caller is only compared.
- C2  The same call has the same capability whatever runtime it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from forestay.extensions.api_table import METHODS, NONE
from forestay.extensions.connectors.addresses import canonical_host
from forestay.extensions.connectors.paths import Roots
from forestay.extensions.mcp.tool_names import resource as mcp_resource
from forestay.kernel import Problem, exactly
from forestay.tools import BUILT_IN, BuiltIn

LINK_ITSELF = frozenset({"delete", "rename", "readlink", "symlink"})
"""Operations that mean a link at the end of their path, not where it leads."""


def derive(method: str, params: Mapping[str, Any]) -> str:
    """The capability that a call needs (C1, C2)."""
    row = METHODS.get(method)
    if row is None:
        known = list(METHODS)
        raise Problem("invalid_request", f"There is no method {method[:40]!r}.", at="$.method", methods=known)
    if not row.by:
        return row.capability or NONE
    value = params.get(row.by)
    found = row.choices.get(value, row.capability) if isinstance(value, str) else row.capability
    if found is None:
        raise Problem("invalid_request", f"There is no operation {value!r} of {method}.", at=f"$.params.{row.by}")
    return found


def resource_of(method: str, params: Mapping[str, Any], roots: Roots) -> str | None:
    """What policy decides about beforehand: a path, a host, a variable; None when unknown or the extension's own."""
    if method == "fs":
        operation = params.get("op")
        path = params.get("prefix") if operation == "mkdtemp" else params.get("path")
        follow = operation not in LINK_ITSELF and params.get("follow") is not False
        return roots.resource(path, follow=follow) if isinstance(path, str) else None
    if method == "http":
        return _host(params.get("url"))
    if method == "tool" and (known := _built_in(params)) is not None:
        given = params.get("input")
        path = given.get("path", ".") if isinstance(given, Mapping) and known.capability != "exec" else None
        return roots.resource(path) if isinstance(path, str) else None
    name = params.get("name")
    if method not in ("env", "tool") or not isinstance(name, str):
        return None
    return (mcp_resource(name) if method == "tool" else None) or name


def _built_in(params: Mapping[str, Any]) -> BuiltIn | None:
    name = params.get("name")
    return BUILT_IN.get(name) if isinstance(name, str) else None


def asked_scope(
    capability: str, method: str, params: Mapping[str, Any], resource: str | None
) -> tuple[str, ...] | None:
    """The patterns that cover what a call asks about and nothing else (P16); None when no pattern can say that."""
    if resource is None:
        return None
    patterns = exactly(capability, resource)
    if patterns is None or not _looks_below(method, params):
        return patterns
    return ("**",) if resource == "." else (f"{resource.rstrip('/')}/**",)


def _looks_below(method: str, params: Mapping[str, Any]) -> bool:
    """Whether a call reads a whole folder: everything below it is what it asks about."""
    if method == "fs":
        return params.get("op") == "list"
    known = _built_in(params) if method == "tool" else None
    return known is not None and known.below


def _host(url: Any) -> str | None:
    try:
        return canonical_host(urlsplit(url).hostname or "") or None if isinstance(url, str) else None
    except ValueError:
        return None
