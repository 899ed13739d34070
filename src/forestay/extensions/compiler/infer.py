"""Which capabilities an extension appears to need (`pi.ext.infer.v1`, Pi §2B.2), with evidence.

1. The same sources give the same answer in the same order, on every machine.
2. Conservative: a use that cannot be told apart counts; nothing seen is left out.
3. A scope is only ever taken from literals; one use with a dynamic value leaves its capability without scope.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from forestay.extensions.api_table import NODE_METHODS, PACKAGE_HINTS
from forestay.extensions.compiler.artifact import Evidence, Location
from forestay.extensions.compiler.bundle import Input
from forestay.extensions.compiler.scan.needs import Use
from forestay.extensions.compiler.scan.reading import read
from forestay.extensions.compiler.scan.syntax import Dialect
from forestay.extensions.manifest import CAP_SCHEMA, CapabilityManifest, Requirement, Scope
from forestay.kernel import canonical, redact_text

SCHEMA = "pi.ext.infer.v1"


class Inference(msgspec.Struct, frozen=True):
    """What was inferred: requirements in stable order, and why."""

    requirements: tuple[Requirement, ...]
    evidence: tuple[Evidence, ...]

    @property
    def capabilities(self) -> tuple[str, ...]:
        return tuple(sorted({need.capability for need in self.requirements}))

    def manifest(self) -> CapabilityManifest:
        return CapabilityManifest(CAP_SCHEMA, self.requirements)


def infer(inputs: Iterable[Input], hints: Iterable[str] = ()) -> Inference:
    """Read every script that is part of the bundle; `hints` are packages whose source is not there."""
    uses: list[Use] = []
    for item in inputs:
        if item.dialect is not None and item.bytes_in_output:
            uses += read(item.name, item.contents, item.dialect).uses
    for package in sorted(hints):
        if package in PACKAGE_HINTS:
            capability = PACKAGE_HINTS[package]
            uses.append(
                Use(capability, NODE_METHODS[capability], "config_hint", package, Location("package.json", 1, 1))
            )
    return _conclude(uses)


def infer_text(name: str, text: str, dialect: Dialect = "ts") -> Inference:
    """Inference over one text; for tests and for looking at a single file."""
    return _conclude(read(name, text.encode(), dialect).uses)


def _conclude(uses: Iterable[Use]) -> Inference:
    unique = sorted(set(uses), key=lambda u: (u.capability, u.method, u.kind, u.location, u.value))
    groups: dict[str, list[Use]] = {}
    for use in unique:
        groups.setdefault(use.capability, []).append(use)
    requirements = tuple(
        Requirement(name, tuple(sorted({use.method for use in found})), _scope(name, found))
        for name, found in sorted(groups.items())
    )
    evidence = tuple(Evidence(u.capability, u.kind, u.method, *_told(u.value), u.location) for u in unique)
    return Inference(requirements, evidence)


@lru_cache(maxsize=2048)  # the same few things are used again and again, and each build asks anew
def _told(value: str) -> tuple[str, str]:
    """The digest of what stands in a source, and what may be shown of it."""
    return canonical.digest(value), redact_text(value)[:80]


def _scope(capability: str, uses: list[Use]) -> Scope | None:
    counted = [use for use in uses if use.kind != "import"] or uses
    if any(use.literal is None for use in counted):
        return None
    values = tuple(sorted({use.literal for use in counted if use.literal is not None}))
    if capability in ("read", "write"):
        return Scope(paths=values)
    if capability == "http":
        return Scope(hosts=values)
    return Scope(env=values) if capability == "env" else None
