"""Language models behind one protocol: `models.open("local")`, then `stream` it or `fold` the stream."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.models.assemble import halves, joined, paired, whole
    from forestay.models.embed import Embedder
    from forestay.models.faults import shown
    from forestay.models.protocol import (
        DEFAULT_PARAMS,
        Completion,
        Delta,
        Deltas,
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
    from forestay.models.registry import KNOWN, REMOTE, OpenModel, open
    from forestay.models.remote import Retries
    from forestay.models.scripted import Script, Scripted, ScriptedCall, Turn
    from forestay.models.tokens import MESSAGE_TOKENS, message_tokens, tool_tokens
    from forestay.models.vocabulary import STOP, stem, words

__getattr__, __dir__ = face(__name__, __file__)
