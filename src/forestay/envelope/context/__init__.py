"""Contexts: what multi-step operations must not forget, kept on the kernel's ledger (R25 to R31)."""

from forestay.envelope.context.follow import Follower
from forestay.envelope.context.query import Projected, project, read_query
from forestay.envelope.context.store import ContextStore, Held
from forestay.envelope.context.types import Context, Entry, LedgerDocument, Query

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
