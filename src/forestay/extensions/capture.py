"""Capability inference by observation (Pi §2B.2): proposes a manifest from what an extension requested while it ran.

A refused request counts like an allowed one. A capability that was used without a resource even once gets no scope,
since no scope would cover that use.
"""

from __future__ import annotations

from collections.abc import Iterable

from forestay.extensions.manifest import CAP_SCHEMA, CapabilityManifest, Requirement, Scope
from forestay.kernel import Record

_SCOPES = {"read": "paths", "write": "paths", "http": "hosts", "env": "env"}


def proposed(records: Iterable[Record]) -> CapabilityManifest:
    """Return the requirements that cover every decision in these records, sorted."""
    asked: dict[str, tuple[set[str], set[str | None]]] = {}
    for record in records:
        if record.type == "policy.decision":
            methods, resources = asked.setdefault(record.payload["capability"], (set(), set()))
            methods.add(record.payload["method"])
            resources.add(record.payload.get("resource"))
    needs = (
        Requirement(name, tuple(sorted(methods)), _scope(name, resources))
        for name, (methods, resources) in sorted(asked.items())
    )
    return CapabilityManifest(CAP_SCHEMA, tuple(needs))


def _scope(capability: str, resources: set[str | None]) -> Scope | None:
    kind = _SCOPES.get(capability)
    known = tuple(sorted(item for item in resources if item is not None))
    return Scope(**{kind: known}) if kind is not None and len(known) == len(resources) else None
