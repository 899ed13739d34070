"""What a node pack requires of the platform, and what its sandbox gives it (OpenWOP RFC 0076 A).

- Q1  A pack is installed when everything that it requires is granted, and refused with what is not.
- Q2  The words are a closed list: one that nobody knows is a mistake of the manifest.
- Q3  A grant opens no door: what a module can reach is what its sandbox gives (W1 of `module`), declared or not.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from forestay.kernel import Problem

PRIMITIVES = ("net.dns", "net.outbound", "crypto", "subprocess", "fs.read", "fs.write", "env.read", "clock")
SANDBOX = frozenset({"clock"})
"""What the sandbox of node packs has: the moment of an invocation, which is the same in a replay."""


def check_requirements(manifest: dict[str, Any], granted: Collection[str] = SANDBOX) -> list[str]:
    """What a manifest requires, when all of it is granted; `pack_runtime_requirement_unmet`."""
    requires = required(manifest)
    unmet = [name for name in requires if name not in granted]
    if unmet:
        name = f"{manifest.get('name', '')}@{manifest.get('version', '')}"[:300]
        raise Problem(
            "pack_runtime_requirement_unmet",
            f"{name} needs {', '.join(unmet)}, which this host does not give to packs.",
            unmet=unmet,
            manifest=name,
        )
    return requires


def required(manifest: dict[str, Any]) -> list[str]:
    """The primitives that a manifest names; `invalid_manifest` for one that there is not, or that stands twice (Q2)."""
    runtime = manifest.get("runtime", {})
    named = runtime.get("requires", []) if isinstance(runtime, dict) else None
    if not isinstance(named, list) or any(item not in PRIMITIVES for item in named) or len(set(named)) < len(named):
        message = f"What a pack requires is a list of {', '.join(PRIMITIVES)}, each at most once."
        raise Problem("pack_manifest_invalid", message, at="$.runtime.requires")
    return named
