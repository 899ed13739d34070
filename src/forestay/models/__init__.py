"""Language models behind one protocol: `models.open("local")`, then `stream` it or `fold` the stream."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.models.assemble import halves, joined, paired, whole
    from forestay.models.belief import believed
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
        Reserving,
        Role,
        ToolCall,
        ToolSpec,
        Usage,
        fold,
    )
    from forestay.models.registry import KNOWN, REMOTE, OpenModel, check_entry, key_source, lacks, open, sends
    from forestay.models.related_words import related
    from forestay.models.remote import Retries, observed
    from forestay.models.scripted import Script, Scripted, ScriptedCall, Turn
    from forestay.models.services import SERVICES, LocalServer, ServedModel, address_of, find_servers, served_models
    from forestay.models.tokens import MESSAGE_TOKENS, OPENING_TOKENS, Estimator, message_tokens, tool_tokens
    from forestay.models.vocabulary import STOP, alike, answering, further, stem, words
    from forestay.models.word_vectors import gist

__getattr__, __dir__ = face(__name__, __file__)
