"""The tables `streams` and `records`: how every backend reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import msgspec

from forestay.kernel.ledger.projections import Database
from forestay.kernel.ledger.records import GENESIS, Head, Record, Row
from forestay.kernel.problems import Problem

_COLUMNS = "r.seq, r.id, r.type, r.ts, r.payload, r.attrs, r.hash"
_ALL = 1 << 62  # rows
_BEHIND = "\x7f"  # sorts behind every character of a stream's name


def stream_row(db: Database, name: str) -> tuple[int, int, bytes]:
    """Number, head and hash of a stream; a new one stands before its first record."""
    row = db.execute("SELECT id, head, hash FROM streams WHERE name = ?", (name,)).fetchone()
    if row is None:
        row = db.execute("INSERT INTO streams (name, head, hash) VALUES (?, -1, ?) RETURNING id", (name, GENESIS))
        return row.fetchone()[0], -1, GENESIS
    return row[0], row[1], row[2]


def insert_records(db: Database, rows: Iterable[Row]) -> None:
    db.executemany(
        "INSERT INTO records (stream, seq, id, type, ts, payload, attrs, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
    )


def move_head(db: Database, stream: int, head: int, hash: bytes) -> None:
    db.execute("UPDATE streams SET head = ?, hash = ? WHERE id = ?", (head, hash, stream))


def read(db: Database, stream: str, start: int, limit: int | None, reverse: bool) -> list[Record]:
    found = db.execute("SELECT id FROM streams WHERE name = ?", (stream,)).fetchone()
    if found is None:
        return []
    count = _ALL if limit is None else limit
    if not reverse:
        return list(_rows(db, found[0], stream, start, count))
    first = db.execute(
        "SELECT min(seq) FROM (SELECT seq FROM records WHERE stream = ? AND seq >= ? ORDER BY seq DESC LIMIT ?) AS l",
        (found[0], start, count),
    ).fetchone()[0]
    if first is None:
        return []
    return list(_rows(db, found[0], stream, first, _ALL))[::-1][:limit]  # more may have been written meanwhile


def _rows(db: Database, stream_id: int, stream: str, start: int, count: int) -> Iterator[Record]:
    prev = hash_at(db, stream_id, start - 1).hex()
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM records r WHERE r.stream = ? AND r.seq >= ? ORDER BY r.seq LIMIT ?",  # noqa: S608
        (stream_id, start, count),
    )
    with closing(rows):  # left in the middle it would hold this connection to what it saw then
        for seq, id, type, ts, payload, attrs, digest in rows:
            hash = digest.hex()
            yield Record(stream, seq, id, type, ts, *_decoded(stream, seq, payload, attrs), prev, hash)
            prev = hash


def hash_at(db: Database, stream_id: int, seq: int) -> bytes:
    """The hash of a record; that of the beginning where there is none."""
    row = db.execute("SELECT hash FROM records WHERE stream = ? AND seq = ?", (stream_id, seq)).fetchone()
    return row[0] if row else GENESIS


def _decoded(stream: str, seq: int, payload: bytes, attrs: bytes | None) -> tuple[Any, Any]:
    try:
        return msgspec.json.decode(payload), msgspec.json.decode(attrs) if attrs else {}
    except msgspec.DecodeError as error:
        raise Problem("chain_broken", f"Record {seq} of {stream} is damaged.", stream=stream, seq=seq) from error


def read_all(db: Database, prefix: str, after: int, limit: int, below: str = "") -> list[tuple[int, Record]]:
    """Records behind the position `after`; `below` is an expression of the backend that they stay below."""
    horizon = f"AND r.pos < {below} " if below else ""
    rows = db.execute(
        f"SELECT r.pos, s.name, {_COLUMNS}, "  # noqa: S608 - the columns are ours
        "(SELECT p.hash FROM records p WHERE p.stream = r.stream AND p.seq = r.seq - 1) "
        "FROM records r JOIN streams s ON s.id = r.stream "
        f"WHERE r.pos > ? {horizon}AND substr(s.name, 1, ?) = ? ORDER BY r.pos LIMIT ?",
        (after, len(prefix), prefix, limit),
    )
    return [
        (
            pos,
            Record(name, seq, id, type, ts, *_decoded(name, seq, payload, attrs), (prev or GENESIS).hex(), hash.hex()),
        )
        for pos, name, seq, id, type, ts, payload, attrs, hash, prev in rows
    ]


def head(db: Database, stream: str) -> Head:
    row = db.execute("SELECT head, hash FROM streams WHERE name = ?", (stream,)).fetchone()
    return Head(row[0], row[1].hex()) if row else Head(-1, GENESIS.hex())


def streams(db: Database, prefix: str, after: str, limit: int) -> dict[str, Head]:
    rows = db.execute(
        "SELECT name, head, hash FROM streams WHERE name >= ? AND name < ? AND name > ? ORDER BY name LIMIT ?",
        (prefix, prefix + _BEHIND, after, limit),
    )
    return {name: Head(seq, digest.hex()) for name, seq, digest in rows}


def position(db: Database, below: str = "") -> int:
    horizon = f" WHERE pos < {below}" if below else ""
    return int(db.execute(f"SELECT coalesce(max(pos), 0) FROM records{horizon}").fetchone()[0])  # noqa: S608
