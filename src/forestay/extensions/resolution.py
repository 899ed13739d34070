"""Resolves what an extension needs: declared and inferred needs against the user's decisions (Pi §2B.3).

The requirements are the sorted union of declared and inferred needs; a user's denial always removes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from forestay.extensions.api_table import CAPABILITIES
from forestay.extensions.compiler.artifact import Artifact
from forestay.extensions.evidence import Event
from forestay.extensions.manifest import Requirement
from forestay.extensions.manifest import Scope as ManifestScope
from forestay.kernel import Mode, Policy, Problem, Scope


class Need(msgspec.Struct, frozen=True):
    """One capability that an extension needs, as known before it runs (`pi.ext.cap.v1`)."""

    capability: str
    methods: tuple[str, ...] = ()
    scope: Scope = Scope()


class Resolution(msgspec.Struct, frozen=True):
    """Declared, inferred and effective requirements, and their differences (§2B.5)."""

    declared: tuple[str, ...]
    inferred: tuple[str, ...]
    effective: tuple[Need, ...]
    removed: tuple[str, ...]
    drift: tuple[str, ...]
    """Inferred but not declared: the host must report these (§3.3)."""
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
    declared: Iterable[Need],
    inferred: Iterable[Need],
    *,
    denied: Iterable[str] = (),
    allowed: Iterable[Need] = (),
    mode: Mode = "prompt",
) -> Resolution:
    """Combine declared and inferred needs, remove what the user denies, and add what the user allows."""
    declared, inferred = tuple(declared), tuple(inferred)
    for item in (*declared, *inferred):
        if item.capability not in CAPABILITIES:
            raise Problem(
                "manifest_invalid",
                f"There is no capability {item.capability[:40]!r}.",
                at="$.capabilities",
                known=sorted(CAPABILITIES),
            )
    union: dict[str, Need] = {}
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


def _either(one: Need, other: Need) -> Need:
    """Return the union of two needs: where one side has no limit, the union has none."""
    return Need(
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


def resolved(artifact: Artifact, policy: Policy, write: Callable[[Event], None]) -> dict[str, tuple[str, ...]]:
    """Resolve an artifact's needs and `write` the result; return its manifest's limits of capabilities to methods."""
    name = artifact.meta.extension_id
    declared = [_declared(item) for item in artifact.meta.manifest.declared()]
    inferred = [Need(capability) for capability in artifact.meta.capabilities_required]
    rules = policy.subjects.get(name)
    denials = (*policy.denials, *(rules.deny if rules else ()))
    denied = {grant.capability for grant in denials if not grant.scope.patterns}
    resolution = resolve(declared, inferred, denied=denied, mode=(rules and rules.mode) or policy.mode)
    write(
        Event("capability.resolve", resolution.log_data([msgspec.to_builtins(item) for item in artifact.meta.evidence]))
    )
    if resolution.verdict == "refused":
        removed = list(resolution.removed)
        told = f"{name} declares {', '.join(removed)}, which is denied in strict mode."
        raise Problem("capability_denied", told, extension=name, removed=removed)
    return {item.capability: item.methods for item in declared if item.methods}


def _declared(item: Requirement) -> Need:
    scope = item.scope or ManifestScope()
    limits = Scope(tuple(scope.paths or ()), tuple(scope.hosts or ()), tuple(scope.env or ()))
    return Need(item.capability, tuple(item.methods or ()), limits)
