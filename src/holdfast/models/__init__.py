"""Language models behind one protocol."""

from holdfast.models.protocol import (
    DEFAULT_PARAMS,
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
    "DEFAULT_PARAMS",
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
