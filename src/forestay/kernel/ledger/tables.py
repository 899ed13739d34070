"""The SQL of the tables `streams` and `records`, for every backend. Records that moved to the archives are read from
there, so that no reader needs to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from forestay.kernel.ledger import archives
from forestay.kernel.ledger.projections import Database
from forestay.kernel.ledger.records import GENESIS, Head, Place, Record, Row
from forestay.kernel.problems import Problem

T = TypeVar("T")
_COLUMNS = "r.seq, r.id, r.type, r.ts, r.payload, r.attrs, r.hash"
_ALL = 1 << 62  # rows
_BEHIND = "\x7f"  # sorts behind every character of a stream's name


def find_stream(db: Database, name: str) -> tuple[int, int, bytes] | None:
    """Return number, head and hash of a stream; None when no stream has this name."""
    found: tuple[int, int, bytes] | None = db.execute(
        "SELECT id, head, hash FROM streams WHERE name = ?", (name,)
    ).fetchone()
    return found


def make_stream(db: Database, name: str) -> int:
    """Create an empty stream and return its number."""
    row = db.execute("INSERT INTO streams (name, head, hash) VALUES (?, -1, ?) RETURNING id", (name, GENESIS))
    return int(row.fetchone()[0])


def stream_row(db: Database, name: str) -> tuple[int, int, bytes]:
    """Like `find_stream`, and create the stream when it is missing."""
    return find_stream(db, name) or (make_stream(db, name), -1, GENESIS)


def insert_records(db: Database, rows: Iterable[Row]) -> None:
    db.executemany(
        "INSERT INTO records (stream, seq, id, type, ts, payload, attrs, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
    )


def move_heads(db: Database, heads: Iterable[tuple[int, bytes, int]]) -> None:
    """Move the heads of streams; each head is a sequence, its hash and the stream's number."""
    db.executemany("UPDATE streams SET head = ?, hash = ? WHERE id = ?", heads)


def read(db: Database, stream: str, start: int, limit: int | None, reverse: bool) -> list[Record]:
    """Return records of a stream from `start` on, newest first with `reverse`. One statement reads them and the record
    before them, whose hash the first of them names; archived records need a second one. The limit stands in the SQL
    text, because PostgreSQL would plan each statement anew to make use of a parameter."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM records r WHERE r.stream = (SELECT id FROM streams WHERE name = ?) "  # noqa: S608
        f"AND r.seq >= ? ORDER BY r.seq {'DESC' if reverse else 'ASC'} LIMIT {_ALL if limit is None else limit + 1}",
        (stream, start - 1),
    )
    with closing(rows):  # an open cursor would keep the connection on an old snapshot
        if not reverse:
            first = rows.fetchone()
            older = _older(db, stream, start, first, None if limit is None else limit + 1)
            newer = () if first is None else chain([first], rows)
            return list(islice(_chained(db, stream, chain(older, newer), start), limit))
        found = rows.fetchall()[::-1]
    if limit is None or len(found) <= limit:
        found = [*_oldest_first(db, stream, start, found, limit), *found]
    first_seq = start if limit is None or len(found) <= limit else found[-limit][0] if limit else _ALL
    return list(_chained(db, stream, found, first_seq))[::-1][:limit]


def _older(db: Database, stream: str, start: int, first: Any, limit: int | None) -> list[archives.Kept]:
    """Return the archived records from the one before `start` up to `first`, where the table begins."""
    low = max(start - 1, 0)
    if first is not None and first[0] <= low:
        return []
    return archives.kept(db, stream, low, None if first is None else first[0] - 1, limit)


def _oldest_first(
    db: Database, stream: str, start: int, found: list[Any], limit: int | None
) -> Sequence[archives.Kept]:
    """Return the archived part of the last records; `found` are those in the table."""
    low, high = max(start - 1, 0), found[0][0] - 1 if found else head(db, stream).seq
    if limit is not None:
        low = max(low, high - (limit - len(found)))
    return archives.kept(db, stream, low, high, None) if low <= high else []


def _chained(db: Database, stream: str, rows: Iterable[Any], start: int) -> Iterator[Record]:
    """Yield the records from `start` on, each with the hash of its predecessor."""
    prev = GENESIS.hex()
    for seq, id, type, ts, payload, attrs, digest in rows:
        hash = digest.hex()
        if seq >= start:
            if payload is None and (gone := archives.removal(db, stream)) is not None:
                raise gone.problem()
            yield Record(stream, seq, id, type, ts, *_decoded(stream, seq, payload, attrs), prev, hash)
        prev = hash


def hash_at(db: Database, stream: str, seq: int) -> bytes | None:
    """Return the hash of a record, archived or not; None when there is no such record."""
    sql = "SELECT r.hash FROM records r WHERE r.stream = (SELECT id FROM streams WHERE name = ?) AND r.seq = ?"
    row = db.execute(sql, (stream, seq)).fetchone()
    if row is None:
        place = archives.place_of(db, stream, seq)
        return None if place is None else place[1]
    hash: bytes = row[0]
    return hash


def place_of(db: Database, stream: str, seq: int) -> Place | None:
    """Return a record's place among all records, also of an archived or removed one."""
    sql = "SELECT r.pos, r.hash FROM records r JOIN streams s ON s.id = r.stream WHERE s.name = ? AND r.seq = ?"
    found = db.execute(sql, (stream, seq)).fetchone() or archives.place_of(db, stream, seq)
    return None if found is None else Place(found[0], stream, seq, found[1].hex())


def _decoded(stream: str, seq: int, payload: bytes, attrs: bytes | None) -> tuple[Any, Any]:
    try:
        return msgspec.json.decode(payload), msgspec.json.decode(attrs) if attrs else {}
    except msgspec.DecodeError as error:
        raise Problem("chain_broken", f"Record {seq} of {stream} is damaged.", stream=stream, seq=seq) from error


def read_all(db: Database, prefix: str, after: int, limit: int, below: str = "") -> list[tuple[int, Record]]:
    """Return records behind the position `after`; `below` is the backend's SQL for the upper bound."""
    end = _end(db, below)
    rows = db.execute(
        f"SELECT r.pos, s.name, {_COLUMNS}, "  # noqa: S608 - the columns are ours
        "coalesce((SELECT p.hash FROM records p WHERE p.stream = r.stream AND p.seq = r.seq - 1), "
        "(SELECT a.hash FROM archives a WHERE a.stream = r.stream AND a.sealed = 1 AND a.last = r.seq - 1)) "
        "FROM records r JOIN streams s ON s.id = r.stream "
        "WHERE r.pos > ? AND r.pos < ? AND substr(s.name, 1, ?) = ? ORDER BY r.pos LIMIT ?",
        (after, end, len(prefix), prefix, limit),
    )
    found = [
        (
            pos,
            Record(name, seq, id, type, ts, *_decoded(name, seq, payload, attrs), (prev or GENESIS).hex(), hash.hex()),
        )
        for pos, name, seq, id, type, ts, payload, attrs, hash, prev in rows
    ]

    def records(archive: archives.Shelved) -> list[tuple[int, Record]]:
        if not archive.stream.startswith(prefix):
            return []
        before = archives.place_of(db, archive.stream, archive.first - 1)
        prev = GENESIS if before is None else before[1]
        contents = chain([(archive.first - 1, "", "", 0, b"", None, prev)], archive.contents())
        chained = _chained(db, archive.stream, contents, archive.first)
        return [(pos, record) for (pos, _), record in zip(archive.positions(), chained, strict=True)]

    return _merged(found, archives.shelved(db, after, end, removed=False), records, after, end, limit)


def places(db: Database, after: int, limit: int, below: str = "") -> list[Place]:
    """Like `read_all`, without payloads, and with the places of removed records."""
    end = _end(db, below)
    rows = db.execute(
        "SELECT r.pos, s.name, r.seq, r.hash FROM records r "
        "JOIN streams s ON s.id = r.stream WHERE r.pos > ? AND r.pos < ? ORDER BY r.pos LIMIT ?",
        (after, end, limit),
    )
    found = [(pos, Place(pos, name, seq, hash.hex())) for pos, name, seq, hash in rows]

    def of(archive: archives.Shelved) -> list[tuple[int, Place]]:
        numbered = enumerate(archive.positions(), start=archive.first)
        return [(pos, Place(pos, archive.stream, seq, hash.hex())) for seq, (pos, hash) in numbered]

    return [place for _, place in _merged(found, archives.shelved(db, after, end, removed=True), of, after, end, limit)]


def _end(db: Database, below: str) -> int:
    """Return the upper bound as one number, because the table and the archives are read one after the other."""
    return int(db.execute(f"SELECT {below}").fetchone()[0]) if below else _ALL


def _merged(
    found: list[tuple[int, T]],
    shelved: Iterable[archives.Shelved],
    items: Callable[[archives.Shelved], list[tuple[int, T]]],
    after: int,
    end: int,
    limit: int,
) -> list[tuple[int, T]]:
    """Merge items of the table and of the archives, and return the first `limit` by position. Archives come in the
    order of their first position, so only those that hold one of the items are opened. A record that is sealed between
    the two reads comes from both and counts once."""
    known = {position for position, _ in found}
    for archive in shelved:
        if len(found) >= limit and archive.low > found[-1][0]:
            break
        found += [item for item in items(archive) if after < item[0] < end and item[0] not in known]
        found.sort(key=itemgetter(0))
        del found[limit:]
    return found


def head(db: Database, stream: str) -> Head:
    row = db.execute("SELECT head, hash FROM streams WHERE name = ?", (stream,)).fetchone()
    return Head(row[0], row[1].hex()) if row else Head(-1, GENESIS.hex())


def streams(db: Database, prefix: str, after: str, limit: int) -> dict[str, Head]:
    """Return the streams that hold records; a stream without any has a row too, after a refused first append."""
    rows = db.execute(
        "SELECT name, head, hash FROM streams WHERE name >= ? AND name < ? AND name > ? AND head >= 0 "
        "ORDER BY name LIMIT ?",
        (prefix, prefix + _BEHIND, after, limit),
    )
    return {name: Head(seq, digest.hex()) for name, seq, digest in rows}


def position(db: Database, below: str = "") -> int:
    horizon = f" WHERE pos < {below}" if below else ""
    return int(db.execute(f"SELECT coalesce(max(pos), 0) FROM records{horizon}").fetchone()[0])  # noqa: S608


def check_version(version: int, known: int) -> None:
    """Refuse tables of a newer forestay, which this version cannot maintain."""
    if version > known:
        raise Problem(
            "migration_unsupported",
            f"The ledger was written by a newer forestay (schema {version}; this one knows {known}).",
            fix="Upgrade forestay.",
        )
