"""The capability model (Pi §3.2, §3.2A, §2B.3): what a host call needs, and what an extension needs altogether.

Invariants:

- C1  A call's capability follows from its method and parameters alone; what the caller claims is only compared.
- C2  The same call has the same capability whatever runtime it comes from.
- C3  Requirements are the union of declared and inferred, sorted; a user's denial always takes away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from forestay.extensions.connectors.addresses import canonical_host
from forestay.extensions.connectors.paths import Roots
from forestay.kernel import Mode, Problem, Scope, exactly
from forestay.tools import BUILT_IN, BuiltIn

CAPABILITIES: dict[str, str] = {
    "read": "read files and folders",
    "write": "create, change and delete files and folders",
    "exec": "run programs",
    "http": "talk to hosts on the network",
    "env": "see environment variables and facts about the machine",
    "session": "read and change the session it runs in",
    "ui": "show notices and ask questions",
    "model": "ask a language model",
    "events": "exchange events with other extensions",
    "log": "write to the log",
    "tool": "call tools that are not built in",
}
NONE = ""
"""The capability of pure computation."""

METHODS = ("tool", "exec", "http", "fs", "env", "session", "ui", "model", "events", "log", "crypto")
READS = frozenset({"read", "list", "stat", "realpath", "access", "exists", "readlink", "watch"})
WRITES = frozenset(
    {"write", "append", "mkdir", "delete", "rename", "copy", "chmod", "utimes", "symlink", "mkdtemp", "truncate"}
)
LINK_ITSELF = frozenset({"delete", "rename", "readlink", "symlink"})
"""Operations that mean a link at the end of their path, not where it leads."""


def derive(method: str, params: Mapping[str, Any]) -> str:
    """The capability that a call needs (C1, C2)."""
    if method == "tool":
        known = _built_in(params)
        return known.capability if known is not None else "tool"
    if method == "fs":
        operation = params.get("op")
        if operation in READS:
            return "read"
        if operation in WRITES:
            return "write"
        raise Problem("invalid_request", f"There is no file operation {operation!r}.", at="$.params.op")
    if method == "crypto" or (method == "env" and params.get("op") == "temp"):
        return NONE  # the extension's own temporary folder says nothing of the machine
    if method in METHODS:
        return method
    raise Problem("invalid_request", f"There is no method {method[:40]!r}.", at="$.method", methods=list(METHODS))


def resource(method: str, params: Mapping[str, Any], roots: Roots) -> str | None:
    """What policy decides about beforehand: a path, a host, a variable; None when unknown or the extension's own."""
    if method == "fs":
        operation = params.get("op")
        path = params.get("prefix") if operation == "mkdtemp" else params.get("path")
        follow = operation not in LINK_ITSELF and params.get("follow") is not False
        return roots.resource(path, follow=follow) if isinstance(path, str) else None
    if method == "http":
        return _host(params.get("url"))
    name = params.get("name")
    if method == "tool" and (known := _built_in(params)) is not None:
        given = params.get("input")
        path = given.get("path", ".") if isinstance(given, Mapping) and known.capability != "exec" else None
        return roots.resource(path) if isinstance(path, str) else None
    return name if method in ("env", "tool") and isinstance(name, str) else None


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
    from urllib.parse import urlsplit

    try:
        return canonical_host(urlsplit(url).hostname or "") or None if isinstance(url, str) else None
    except ValueError:
        return None


class Requirement(msgspec.Struct, frozen=True):
    """One capability that an extension needs, as far as is known in advance (`pi.ext.cap.v1`)."""

    capability: str
    methods: tuple[str, ...] = ()
    scope: Scope = Scope()


class Resolution(msgspec.Struct, frozen=True):
    """Declared, inferred and effective requirements, and what stands between them (§2B.5)."""

    declared: tuple[str, ...]
    inferred: tuple[str, ...]
    effective: tuple[Requirement, ...]
    removed: tuple[str, ...]
    drift: tuple[str, ...]
    """Inferred but not declared: the host must say so (§3.3)."""
    verdict: Literal["accepted", "needs_decision", "refused"]

    def log_data(self, evidence: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        return {
            "declared": list(self.declared),
            "inferred": list(self.inferred),
            "effective": [item.capability for item in self.effective],
            "removed": list(self.removed),
            "drift": list(self.drift),
            "verdict": self.verdict,
            "evidence": [dict(item) for item in evidence],
        }


def resolve(
    declared: Iterable[Requirement],
    inferred: Iterable[Requirement],
    *,
    denied: Iterable[str] = (),
    allowed: Iterable[Requirement] = (),
    mode: Mode = "prompt",
) -> Resolution:
    """Declared and inferred together, less what the user denies, plus what the user allows (C3)."""
    declared, inferred = tuple(declared), tuple(inferred)
    for item in (*declared, *inferred):
        if item.capability not in CAPABILITIES:
            raise Problem(
                "manifest_invalid",
                f"There is no capability {item.capability[:40]!r}.",
                at="$.capabilities",
                known=sorted(CAPABILITIES),
            )
    union: dict[str, Requirement] = {}
    for item in (*declared, *inferred):
        union[item.capability] = _either(union[item.capability], item) if item.capability in union else item
    removed = sorted(set(denied) & union.keys())
    wanted = {item.capability for item in declared}
    for name in removed:
        del union[name]
    for item in allowed:
        union[item.capability] = _either(union[item.capability], item) if item.capability in union else item
    verdict: Literal["accepted", "needs_decision", "refused"] = "accepted"
    if wanted & set(removed) - union.keys():
        verdict = {"strict": "refused", "prompt": "needs_decision", "permissive": "accepted"}[mode]  # type: ignore[assignment]
    return Resolution(
        declared=tuple(sorted(wanted)),
        inferred=tuple(sorted({item.capability for item in inferred})),
        effective=tuple(union[name] for name in sorted(union)),
        removed=tuple(removed),
        drift=tuple(sorted({item.capability for item in inferred} - wanted)),
        verdict=verdict,
    )


def _either(one: Requirement, other: Requirement) -> Requirement:
    """The wider of two: no limit on one side is no limit on both."""
    return Requirement(
        one.capability,
        _wider(one.methods, other.methods),
        Scope(
            paths=_wider(one.scope.paths, other.scope.paths),
            hosts=_wider(one.scope.hosts, other.scope.hosts),
            env=_wider(one.scope.env, other.scope.env),
        ),
    )


def _wider(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*one, *other})) if one and other else ()
