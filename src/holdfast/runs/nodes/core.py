"""The node types that come with holdfast, in one list."""

from __future__ import annotations

from holdfast.runs.nodes import ai, basic, children, conformance, gates, outside
from holdfast.runs.nodes.map import map_type
from holdfast.runs.nodes.registry import NodeRegistry, custom_types


def standard_registry(*, sample_seams: bool = False, custom: bool = True) -> NodeRegistry:
    """A registry with every core type, what `@node` declared, and, for tests of the contract, its sample types."""
    registry = NodeRegistry([*basic.TYPES, *gates.TYPES, *children.TYPES, *ai.TYPES, *outside.TYPES])
    registry.add(map_type(registry))
    for item in conformance.TYPES if sample_seams else []:
        registry.add(item)
    for item in custom_types() if custom else []:
        registry.add(item)
    return registry
