"""The table of sessions, kept by the ledger in the transaction that writes their records."""

from __future__ import annotations

import sqlite3

from holdfast.kernel.ledger import Record


class SessionsTable:
    """Who is open, since when and how far: for limits per app and for lists."""

    name = "relay_sessions"
    version = 1
    prefix = "relay/"
    schema = (
        "CREATE TABLE relay_sessions (id TEXT PRIMARY KEY, app TEXT NOT NULL, role TEXT NOT NULL, "
        "created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, closed INTEGER NOT NULL DEFAULT 0, "
        "windows INTEGER NOT NULL DEFAULT 0, facts INTEGER NOT NULL DEFAULT 0);"
        "CREATE INDEX relay_sessions_app ON relay_sessions (app, closed);"
    )
    reset = "DROP TABLE IF EXISTS relay_sessions;"

    def apply(self, tx: sqlite3.Cursor, record: Record) -> None:
        session = record.stream.removeprefix("relay/")
        payload = record.payload
        match record.type:
            case "crp.extraction.complete":
                rows = payload["rows"] if isinstance(payload, dict) else payload.rows
                tx.execute("UPDATE relay_sessions SET facts = facts + ? WHERE id = ?", (len(rows), session))
            case "crp.window.complete":
                tx.execute("UPDATE relay_sessions SET windows = windows + 1 WHERE id = ?", (session,))
            case "crp.session.init":
                tx.execute(
                    "INSERT INTO relay_sessions (id, app, role, created_ms, expires_ms) VALUES (?, ?, ?, ?, ?)",
                    (session, payload["app_id"], payload["role"], payload["created_ms"], payload["expires_ms"]),
                )
            case "crp.session.configure":
                tx.execute("UPDATE relay_sessions SET expires_ms = ? WHERE id = ?", (payload["expires_ms"], session))
            case "crp.session.reset":
                tx.execute("UPDATE relay_sessions SET windows = 0, facts = 0 WHERE id = ?", (session,))
            case "crp.session.close":
                tx.execute("UPDATE relay_sessions SET closed = 1 WHERE id = ?", (session,))
            case _:
                pass
