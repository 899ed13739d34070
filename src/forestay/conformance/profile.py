"""The contract's profiles, computed from a host's discovery document alone (§1.12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

Level = Literal["none", "partial", "full"]
Document = dict[str, Any]


class AgentPlatform(msgspec.Struct, frozen=True, rename="camel"):
    """How much of the agent platform a host has (RFC 0085)."""

    level: Level
    satisfied_terms: list[str]
    missing_terms: list[str]


def flag(document: Document, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    found: Any = document
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _on(*paths: str) -> Callable[[Document], bool]:
    """Return a test of whether one of the flags is true."""
    return lambda document: any(flag(document, path) is True for path in paths)


def _bridged(document: Document) -> bool:
    source = ("queueBus.supported", "webhooks.durable", "scheduling.supported")
    wanted = ("triggerBridge.supported", "deadLetter.supported")
    return all(flag(document, path) is True for path in wanted) and _on(*source)(document)


def _remembers(document: Document) -> bool:
    backends = flag(document, "agents.memoryBackends") or ()
    writable = flag(document, "memory.writable") is not False
    return flag(document, "memory.supported") is True and writable and "long-term" in backends


def _core(document: Document) -> bool:
    limits = ("clarificationRounds", "schemaRounds", "envelopesPerTurn")
    return (
        isinstance(document.get("protocolVersion"), str)
        and isinstance(document.get("supportedEnvelopes"), list)
        and isinstance(document.get("schemaVersions"), dict)
        and all(isinstance(flag(document, f"limits.{name}"), int) for name in limits)
    )


PROFILES: dict[str, Callable[[Document], bool]] = {
    "core": _core,
    "interrupts": lambda document: "clarification.request" in (document.get("supportedEnvelopes") or ()),
    "replay-fork": lambda document: _on("replay.supported")(document) and bool(flag(document, "replay.modes")),
    "fixtures": lambda document: bool(document.get("fixtures")),
    "secrets": lambda document: "user" in (flag(document, "secrets.scopes") or ()),
    "provider-policy": lambda document: "optional" in (flag(document, "providerPolicy.modes") or ()),
    "node-packs": _on("nodePacks.supported"),
    "memory": _remembers,
    "trigger-bridge": _bridged,
    "agent-platform": lambda document: agent_platform(document).level != "none",
    "agent-platform-full": lambda document: agent_platform(document).level == "full",
}
"""Tests whether a document has a profile, by the profile's name without `openwop-`."""

_PARTIAL = (
    "agents.manifestRuntime",
    "agents.liveRuntime",
    "toolCatalog",
    "toolHooks",
    "httpClient.safeFetch",
    "providerUsage",
    "prompts",
    "memory",
    "feedback",
)
_FULL = (
    "authorization",
    "memory.attribution",
    "debugBundle",
    "triggerBridge",
    "httpClient.egressPolicy",
)
_REPLAYS = "replay | nondeterminismPolicy"
_TENANTS = "agents.manifestRuntime.installScope = tenant"


def agent_platform(document: Document) -> AgentPlatform:
    """Return the level of a host by RFC 0085: ten terms make it partial, six more make it full."""
    first = {term: flag(document, f"{term}.supported") is True for term in _PARTIAL}
    first[_REPLAYS] = _on("replay.supported", "nondeterminismPolicy.declared")(document)
    more = {term: flag(document, f"{term}.supported") is True for term in _FULL}
    more[_TENANTS] = flag(document, "agents.manifestRuntime.installScope") == "tenant"
    level: Level = "none"
    if all(first.values()):
        level = "full" if all(more.values()) else "partial"
    terms = {**first, **more}
    return AgentPlatform(
        level, [term for term, held in terms.items() if held], [term for term, held in terms.items() if not held]
    )


def profiles(document: Document) -> list[str]:
    """Return the names of the profiles that a host has."""
    return [name for name, has in PROFILES.items() if has(document)]
