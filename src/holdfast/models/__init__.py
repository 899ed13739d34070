"""Language models behind one protocol."""

from holdfast.models.protocol import (
    Completion,
    Delta,
    FinishReason,
    Message,
    Model,
    Params,
    Role,
    ToolCall,
    ToolSpec,
    Usage,
    fold,
)

__all__ = [
    "Completion",
    "Delta",
    "FinishReason",
    "Message",
    "Model",
    "Params",
    "Role",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "fold",
]
