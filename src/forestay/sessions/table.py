"""The list of sessions: a row for each session, folded from the streams `session/…`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forestay.kernel import Record, Transaction
from forestay.sessions.tree import role_of, text_of

_FIRST = 200  # characters of the first message, the title of a session without a name


class SessionLine(msgspec.Struct, frozen=True, rename="camel"):
    """A session in the list."""

    session_id: str
    name: str
    first: str
    """The beginning of the user's first message."""
    cwd: str
    parent: str
    entries: int
    created_ms: int
    changed_ms: int


class SessionTable:
    """The projection `sessions`."""

    name = "sessions"
    version = 1
    prefix = "session/"
    schema = """
        CREATE TABLE sessions (
            session_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, first TEXT NOT NULL,
            cwd TEXT NOT NULL, parent TEXT NOT NULL, entries BIGINT NOT NULL, created_ms BIGINT NOT NULL,
            changed_ms BIGINT NOT NULL
        );
        CREATE INDEX sessions_of ON sessions (tenant, changed_ms, session_id)
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            self._take(tx, record)

    def _take(self, tx: Transaction, record: Record) -> None:
        session, payload, ts = record.stream.removeprefix(self.prefix), record.payload, record.ts
        if record.type == "session.created":
            row = (session, record.attrs["tenant"], payload.get("cwd", ""), payload.get("parentSession", ""), ts, ts)
            tx.execute("INSERT INTO sessions VALUES (?, ?, '', '', ?, ?, 0, ?, ?)", row)
            return
        tx.execute("UPDATE sessions SET changed_ms = ? WHERE session_id = ?", (ts, session))
        if record.type != "session.entry":
            return
        tx.execute("UPDATE sessions SET entries = entries + 1 WHERE session_id = ?", (session,))
        if payload["type"] == "session_info":
            tx.execute("UPDATE sessions SET name = ? WHERE session_id = ?", (str(payload["name"]), session))
        elif role_of(payload) == "user":
            first = text_of(payload["message"].get("content"))[:_FIRST]
            tx.execute("UPDATE sessions SET first = ? WHERE session_id = ? AND first = ''", (first, session))


COLUMNS = "session_id, name, first, cwd, parent, entries, created_ms, changed_ms"
