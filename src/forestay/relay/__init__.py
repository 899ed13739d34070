"""The relay: gives a model the right context and takes output of any length, without altering it (CRP 2.0)."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.relay.documents.kinds import Converted, charset_of, document_kind
    from forestay.relay.documents.kinds import Kind as DocumentKind
    from forestay.relay.envelope import pack
    from forestay.relay.evaluation import CUTS, Evaluation, questions_of
    from forestay.relay.facts import view
    from forestay.relay.guard import OPERATIONS, ROLES, Role, role_decision
    from forestay.relay.history import SessionHistories, SessionHistory, Shown, sessions
    from forestay.relay.journal import Meters
    from forestay.relay.memories import Memories
    from forestay.relay.memory_entry import MemoryEntry, Origin, ShownEntry
    from forestay.relay.memory_index import FoundEntry
    from forestay.relay.memory_table import MemoryTable
    from forestay.relay.ranking import rank
    from forestay.relay.reasons import Reason
    from forestay.relay.relay import MAX_SESSIONS_PER_APP, Relay
    from forestay.relay.report import Piece, Turned
    from forestay.relay.session import Session, told
    from forestay.relay.state import read_header
    from forestay.relay.types import (
        PROTOCOL_VERSION,
        CostEstimate,
        Count,
        CrpError,
        EnvelopePreview,
        ExtractionResult,
        Fraction,
        Positive,
        Pricing,
        QualityReport,
        RemainingBudget,
        Restored,
        SecurityFlags,
        SemVer,
        SessionConfig,
        SessionHandle,
        SessionStatus,
        StreamEvent,
        TaskIntent,
        Tier,
        Uuid,
    )
    from forestay.relay.warm import Warm, unpack_text

__getattr__, __dir__ = face(__name__, __file__)
