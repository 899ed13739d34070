"""Checks what a node pack requires of the platform against what its sandbox provides (OpenWOP RFC 0076 A).

- Q1  A pack is installed when all its requirements are granted; else it is refused, and the Problem lists the rest.
- Q2  The requirements are a closed list: an unknown name is an error of the manifest.
- Q3  A grant gives no further access: a module reaches only what its sandbox provides (W1 of `module`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from forestay.kernel import Problem

PRIMITIVES = ("net.dns", "net.outbound", "crypto", "subprocess", "fs.read", "fs.write", "env.read", "clock")
SANDBOX = frozenset({"clock"})
"""What the sandbox of node packs provides: the time of an invocation, which is the same in a replay."""


def check_requirements(manifest: dict[str, Any], granted: Collection[str] = SANDBOX) -> list[str]:
    """Return a manifest's requirements if all are granted; else raise `pack_runtime_requirement_unmet`."""
    requires = required(manifest)
    unmet = [name for name in requires if name not in granted]
    if unmet:
        name = f"{manifest.get('name', '')}@{manifest.get('version', '')}"[:300]
        raise Problem(
            "pack_runtime_requirement_unmet",
            f"{name} needs {', '.join(unmet)}, which this host does not provide to packs.",
            unmet=unmet,
            manifest=name,
        )
    return requires


def required(manifest: dict[str, Any]) -> list[str]:
    """Return the primitives that a manifest requires; an unknown or repeated one is `pack_manifest_invalid` (Q2)."""
    runtime = manifest.get("runtime", {})
    named = runtime.get("requires", []) if isinstance(runtime, dict) else None
    if not isinstance(named, list) or any(item not in PRIMITIVES for item in named) or len(set(named)) < len(named):
        message = f"`requires` must be a list of {', '.join(PRIMITIVES)}, each at most once."
        raise Problem("pack_manifest_invalid", message, at="$.runtime.requires")
    return named
