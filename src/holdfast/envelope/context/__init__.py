"""What a multi-step operation must not forget, kept on the kernel's ledger (R25 to R31)."""

from holdfast.envelope.context.follow import Follower
from holdfast.envelope.context.query import Projected, project, read_query
from holdfast.envelope.context.store import ContextStore, Held
from holdfast.envelope.context.types import Context, Entry, LedgerDocument, Query

__all__ = [
    "Context",
    "ContextStore",
    "Entry",
    "Follower",
    "Held",
    "LedgerDocument",
    "Projected",
    "Query",
    "project",
    "read_query",
]
