"""Node types: the code of nodes, by their `typeId`."""

from forestay.runs.nodes.registry import NodeContext, NodeError, NodeRegistry, NodeType, node

__all__ = ["NodeContext", "NodeError", "NodeRegistry", "NodeType", "node"]
