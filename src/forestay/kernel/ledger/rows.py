"""How records and heads of streams are written into their tables, whoever writes them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from forestay.kernel.ledger.records import GENESIS

# (stream, seq, id, type, ts, payload, attrs or None, hash), as the table has them
Row = tuple[int, int, str, str, int, bytes, bytes | None, bytes]


def stream_row(cursor: sqlite3.Cursor, name: str) -> tuple[int, int, bytes]:
    """Number, head and hash of a stream; a new one stands before its first record."""
    row = cursor.execute("SELECT id, head, hash FROM streams WHERE name = ?", (name,)).fetchone()
    if row is not None:
        return row[0], row[1], row[2]
    cursor.execute("INSERT INTO streams (name, head, hash) VALUES (?, -1, ?)", (name, GENESIS))
    number = cursor.lastrowid
    assert number is not None, "an INSERT has one"
    return number, -1, GENESIS


def insert_records(cursor: sqlite3.Cursor, rows: Iterable[Row]) -> None:
    cursor.executemany(
        "INSERT INTO records (stream, seq, id, type, ts, payload, attrs, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
    )


def move_head(cursor: sqlite3.Cursor, stream: int, head: int, hash: bytes) -> None:
    cursor.execute("UPDATE streams SET head = ?, hash = ? WHERE id = ?", (head, hash, stream))
