"""Weighs the risk of granting a capability (Pi §5): signs of the artifact for and against it."""

from __future__ import annotations

from forestay.extensions.compiler.artifact import Artifact
from forestay.kernel import Weighed, weigh

_USES = {"uses_fs": ("read", "write"), "uses_exec": ("exec",), "uses_http": ("http",), "uses_env": ("env",)}


def signs(artifact: Artifact, capability: str, *, trusted: bool = False) -> dict[str, float]:
    """Return the artifact's signs, each with its strength between 0 and 1."""
    meta = artifact.meta
    needs = {*meta.capabilities_required, capability}
    found = {name: 1.0 for name, members in _USES.items() if needs & set(members)}
    found["unsigned"] = 1.0  # extensions carry no signature that this host could check
    found["size_mb"] = round(min(1.0, len(artifact.code) / 1_000_000), 3)
    declared = {item.capability for item in meta.manifest.declared()}
    found["declared" if capability in declared else "undeclared"] = 1.0
    if meta.flagged_apis:
        found["flagged_api"] = 1.0
    if trusted:
        found["trusted"] = 1.0
    return found


def weighed(artifact: Artifact, capability: str, *, trusted: bool = False) -> Weighed:
    """Weigh granting `capability` against denying it; include the arithmetic."""
    return weigh(signs(artifact, capability, trusted=trusted))
