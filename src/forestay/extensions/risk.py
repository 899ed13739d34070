"""What speaks for and against an extension (Pi §5): signs of its artifact, weighed for one capability."""

from __future__ import annotations

from forestay.extensions.compiler.artifact import Artifact
from forestay.kernel import Weighed, weigh

_USES = {"uses_fs": ("read", "write"), "uses_exec": ("exec",), "uses_http": ("http",), "uses_env": ("env",)}


def signs(artifact: Artifact, capability: str, *, trusted: bool = False) -> dict[str, float]:
    """Each sign that is there, with its strength between 0 and 1."""
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
    """Granting `capability` against denying it, with the arithmetic."""
    return weigh(signs(artifact, capability, trusted=trusted))
