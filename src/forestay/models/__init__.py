"""Language models behind one protocol: `models.open("local")`, then `stream` it or `fold` the stream."""

from forestay.models.protocol import (
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
from forestay.models.registry import KNOWN, OpenModel, Options, open
from forestay.models.resend import Retries

__all__ = [
    "DEFAULT_PARAMS",
    "KNOWN",
    "Completion",
    "Delta",
    "FinishReason",
    "Message",
    "Model",
    "OpenModel",
    "Options",
    "Params",
    "Retries",
    "Role",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "fold",
    "open",
]
