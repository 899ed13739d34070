"""The JSON Schemas of the extension system's documents, generated from their types."""

from __future__ import annotations

from typing import Any

from forestay.extensions import protocol
from forestay.extensions.compiler.artifact import ArtifactMeta
from forestay.extensions.manifest import CapabilityManifest, Manifest
from forestay.kernel import schema_of


def schemas() -> dict[str, dict[str, Any]]:
    return {
        "artifact": schema_of(ArtifactMeta),
        "capability-manifest": schema_of(CapabilityManifest),
        "host-call": schema_of(protocol.HostCall),
        "host-result": schema_of(protocol.HostResult),
        "manifest": schema_of(Manifest),
        "tool-call": schema_of(protocol.ToolCall),
        "tool-result": schema_of(protocol.ToolResult),
    }
