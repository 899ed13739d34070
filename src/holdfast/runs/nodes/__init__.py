"""Node types: what a node does, by its `typeId`."""

from holdfast.runs.nodes.registry import NodeContext, NodeRegistry, NodeType, node

__all__ = ["NodeContext", "NodeRegistry", "NodeType", "node"]
