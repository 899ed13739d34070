"""The node types that come with forestay, in one list."""

from __future__ import annotations

from forestay.runs.nodes import ai, basic, children, conformance, gates, outside
from forestay.runs.nodes.map import map_type
from forestay.runs.nodes.registry import NodeRegistry, custom_types


def standard_registry(*, sample_seams: bool = False, custom: bool = True) -> NodeRegistry:
    """Return a registry with every core type, the types of `@node` and, for the contract's tests, the sample types."""
    types = {item.type_id: item for group in (basic, gates, children, ai, outside) for item in group.TYPES}
    if sample_seams:
        types.update({item.type_id: item for item in conformance.TYPES})
    registry = NodeRegistry(list(types.values()))
    registry.add(map_type(registry))
    for item in custom_types() if custom else []:
        registry.add(item)
    return registry
