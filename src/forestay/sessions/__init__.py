"""Conversations: a session is a tree of entries in a stream of the ledger; it can read and write pi's session files."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.sessions.memory import MemorySessions, SessionKeeper
    from forestay.sessions.pi_file import MAX_BYTES, write_file
    from forestay.sessions.store import Sessions
    from forestay.sessions.table import SessionLine, SessionTable
    from forestay.sessions.tree import Entry, SessionTree, TurnStart, Wish, role_of, sent_message, text_of
    from forestay.sessions.usage import context_usage, estimated_tokens

__getattr__, __dir__ = face(__name__, __file__)
