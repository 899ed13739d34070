"""The table of sessions, kept by the ledger in the transaction that writes their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forestay.kernel import Record, Transaction


class SessionsTable:
    """Who is open, since when and how far: for limits per app and for lists."""

    name = "relay_sessions"
    version = 2
    prefix = "relay/"
    schema = (
        "CREATE TABLE relay_sessions (id TEXT PRIMARY KEY, app TEXT NOT NULL, role TEXT NOT NULL, "
        "created_ms BIGINT NOT NULL, expires_ms BIGINT NOT NULL, closed BIGINT NOT NULL DEFAULT 0, "
        "windows BIGINT NOT NULL DEFAULT 0, facts BIGINT NOT NULL DEFAULT 0, "
        "input_tokens BIGINT NOT NULL DEFAULT 0, output_tokens BIGINT NOT NULL DEFAULT 0, "
        "max_windows BIGINT, max_input BIGINT, max_output BIGINT);"
        "CREATE INDEX relay_sessions_app ON relay_sessions (app, closed);"
    )

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            self._take(tx, record)

    def _take(self, tx: Transaction, record: Record) -> None:
        session = record.stream.removeprefix("relay/")
        payload = record.payload
        match record.type:
            case "crp.extraction.complete":
                rows = payload["rows"] if isinstance(payload, dict) else payload.rows
                tx.execute("UPDATE relay_sessions SET facts = facts + ? WHERE id = ?", (len(rows), session))
            case "crp.window.complete":
                tx.execute(
                    "UPDATE relay_sessions SET windows = windows + 1, input_tokens = input_tokens + ?, "
                    "output_tokens = output_tokens + ? WHERE id = ?",
                    (payload["input_tokens"], payload["output_tokens"], session),
                )
            case "crp.session.init":
                tx.execute(
                    "INSERT INTO relay_sessions (id, app, role, created_ms, expires_ms, max_windows, max_input, "
                    "max_output) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        session,
                        payload["app_id"],
                        payload["role"],
                        payload["created_ms"],
                        payload["expires_ms"],
                        *_caps(payload["config"]),
                    ),
                )
            case "crp.session.configure":
                tx.execute(
                    "UPDATE relay_sessions SET expires_ms = ?, max_windows = ?, max_input = ?, max_output = ? "
                    "WHERE id = ?",
                    (payload["expires_ms"], *_caps(payload["config"]), session),
                )
            case "crp.session.reset":
                tx.execute(
                    "UPDATE relay_sessions SET windows = 0, facts = 0, input_tokens = 0, output_tokens = 0 "
                    "WHERE id = ?",
                    (session,),
                )
            case "crp.session.close":
                tx.execute("UPDATE relay_sessions SET closed = 1 WHERE id = ?", (session,))
            case _:
                pass


def _caps(config: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """What the session may use altogether: windows, input tokens, output tokens; None where nothing limits."""
    return (
        config.get("max_windows_per_session") or config.get("max_windows"),
        config.get("max_total_input_tokens"),
        config.get("max_total_output_tokens"),
    )
