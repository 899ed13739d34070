"""Node types: what a node does, by its `typeId`."""

from forestay.runs.nodes.registry import NodeContext, NodeError, NodeRegistry, NodeType, node

__all__ = ["NodeContext", "NodeError", "NodeRegistry", "NodeType", "node"]
