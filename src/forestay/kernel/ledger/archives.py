"""Archives: parts of streams that left the table of records and are kept compressed.

- A1  An archive holds the records `first` to `last` of one stream as the table had them. A stream's archives follow
      each other without a gap, from its first record on.
- A2  A record is in the table or in an archive that is sealed. The archive is on disk before it is sealed; sealing it,
      taking its records out of the table and telling of it in the stream `retention` are one transaction.
- A3  Removing an archive takes its contents and tells of it in the stream `retention`, in one transaction. The position
      and the hash of each record stay: heads, chains and signed checkpoints hold.
- A4  `retention` itself is never sealed. So the newest record of all is always in the table.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from forestay.kernel import canonical
from forestay.kernel.ambient import iso
from forestay.kernel.ledger.projections import Database, Transaction
from forestay.kernel.ledger.records import Record
from forestay.kernel.problems import Problem

RETENTION = "retention"
SEALED = "stream.sealed"
REMOVED = "stream.removed"
_MOST_RECORDS = 512  # of one archive
_MOST_BYTES = 4 * 1024 * 1024  # of one archive, before it is compressed; one record may have more
_PLACE = struct.Struct(">q32s")
_CHUNK = 64
# (seq, id, type, ts, payload or None where it was removed, attrs, hash), as the table of records has them
Kept = tuple[int, str, str, int, bytes | None, bytes | None, bytes]
_Row = tuple[int, str, str, int, bytes, bytes | None, bytes]


class Part(msgspec.Struct, frozen=True):
    """An archive as it is made, before it is sealed."""

    stream: str
    stream_id: int
    first: int
    last: int
    low: int
    high: int
    hash: bytes
    places: bytes
    data: bytes
    digest: str

    def told(self) -> dict[str, Any]:
        """What `retention` says of it."""
        return {"stream": self.stream, "first": self.first, "last": self.last, "digest": self.digest}


class Removal(msgspec.Struct, frozen=True):
    """A stream whose contents are gone: where it stood, when it was removed and by which policy."""

    stream: str
    last: int
    hash: str
    at: int
    policy: Any

    def problem(self) -> Problem:
        return Problem(
            "records_removed",
            f"The records of {self.stream} up to {self.last} were removed at {iso(self.at)}.",
            stream=self.stream,
            last=self.last,
            hash=self.hash,
            removed_at=iso(self.at),
            policy=self.policy,
        )


# Making archives


def next_part(db: Database, stream: str) -> Part | None:
    """The next records of a stream that are in the table, as an archive; None when there are none."""
    row = db.execute("SELECT id FROM streams WHERE name = ?", (stream,)).fetchone()
    if row is None or stream == RETENTION:  # A4
        return None
    sql = "SELECT pos, seq, id, type, ts, payload, attrs, hash FROM records WHERE stream = ? ORDER BY seq LIMIT ?"
    found: list[tuple[Any, ...]] = []
    size = 0
    for item in db.execute(sql, (row[0], _MOST_RECORDS)).fetchall():
        size += len(item[5]) + len(item[6] or b"")
        if found and size > _MOST_BYTES:
            break
        found.append(item)
    return _part(stream, row[0], found) if found else None


def _part(stream: str, stream_id: int, rows: Sequence[tuple[Any, ...]]) -> Part:
    data = zlib.compress(msgspec.msgpack.encode([item[1:] for item in rows]), 6)
    return Part(
        stream,
        stream_id,
        first=rows[0][1],
        last=rows[-1][1],
        low=rows[0][0],
        high=rows[-1][0],
        hash=rows[-1][7],
        places=b"".join(_PLACE.pack(item[0], item[7]) for item in rows),
        data=data,
        digest=hashlib.sha256(data).hexdigest(),
    )


def keep(tx: Database, parts: Iterable[Part]) -> None:
    """Write archives that are not sealed yet, in place of what an earlier attempt may have left."""
    for part in parts:
        tx.execute("DELETE FROM archives WHERE stream = ? AND sealed = 0", (part.stream_id,))
        tx.execute(
            "INSERT INTO archives (stream, first, last, low, high, hash, places, data, digest, sealed) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT (stream, first) DO NOTHING",
            (
                part.stream_id,
                part.first,
                part.last,
                part.low,
                part.high,
                part.hash,
                part.places,
                part.data,
                part.digest,
            ),
        )


class Sealing:
    """What a record of `retention` does to the tables, in its own transaction (A2, A3). It is no table of its own: the
    archives cannot be made from the records again."""

    name = "archives"
    version = 1
    prefix = RETENTION
    schema = ""

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            if record.stream == RETENTION and record.type == SEALED:
                for part in record.payload["archives"]:
                    _seal(tx, part)
            elif record.stream == RETENTION and record.type == REMOVED:
                policy = canonical.encode(record.payload["policy"]).decode()
                for item in record.payload["streams"]:
                    tx.execute(_REMOVE, (record.ts, policy, item["stream"], item["last"]))


_THE_STREAM = "(SELECT id FROM streams WHERE name = ?)"
_SEAL = f"UPDATE archives SET sealed = 1 WHERE stream = {_THE_STREAM} AND first = ? AND digest = ? AND sealed = 0"  # noqa: S608
_LEAVE = f"""
    DELETE FROM records WHERE stream = {_THE_STREAM} AND seq BETWEEN ? AND ? AND EXISTS (
        SELECT 1 FROM archives a WHERE a.stream = records.stream AND a.first = ? AND a.digest = ? AND a.sealed = 1)
"""  # noqa: S608
_REMOVE = f"""
    UPDATE archives SET data = NULL, removed = ?, policy = ?
    WHERE stream = {_THE_STREAM} AND last <= ? AND sealed = 1 AND removed IS NULL
"""  # noqa: S608


def _seal(tx: Transaction, part: dict[str, Any]) -> None:
    stream, first, last, digest = part["stream"], part["first"], part["last"], part["digest"]
    tx.execute(_SEAL, (stream, first, digest))
    tx.execute(_LEAVE, (stream, first, last, first, digest))


# Reading archives


def kept(db: Database, stream: str, low: int, high: int | None, limit: int | None) -> list[Kept]:
    """At most `limit` archived records of a stream with sequences from `low` to `high`; those that were removed have
    their hash only."""
    found: list[Kept] = []
    at = low
    while (limit is None or len(found) < limit) and (high is None or at <= high):
        row = db.execute(
            "SELECT a.first, a.last, a.places, a.data FROM archives a "  # noqa: S608 - the words are ours
            f"WHERE a.stream = {_THE_STREAM} AND a.sealed = 1 AND a.last >= ? ORDER BY a.first LIMIT 1",
            (stream, at),
        ).fetchone()
        if row is None:
            break
        found += [item for item in _contents(stream, *row) if item[0] >= at and (high is None or item[0] <= high)]
        at = row[1] + 1
    return found[:limit]


def _contents(stream: str, first: int, last: int, places: bytes, data: bytes | None) -> list[Kept]:
    if data is None:
        return [
            (first + number, "", "", 0, None, None, hash) for number, (_, hash) in enumerate(_PLACE.iter_unpack(places))
        ]
    try:
        rows = msgspec.msgpack.decode(zlib.decompress(data), type=list[_Row])
    except (zlib.error, msgspec.MsgspecError) as error:
        message = f"The archive of {stream} from {first} to {last} is damaged."
        raise Problem("chain_broken", message, stream=stream, seq=first) from error
    return [*rows]


def removal(db: Database, stream: str) -> Removal | None:
    """What was removed of a stream last; None when all of it is there."""
    row = db.execute(
        "SELECT a.last, a.hash, a.removed, a.policy FROM archives a "  # noqa: S608 - the words are ours
        f"WHERE a.stream = {_THE_STREAM} AND a.removed IS NOT NULL ORDER BY a.first DESC LIMIT 1",
        (stream,),
    ).fetchone()
    return None if row is None else Removal(stream, row[0], row[1].hex(), row[2], msgspec.json.decode(row[3]))


def sealed_last(db: Database, stream_id: int) -> int:
    """The last archived sequence of a stream; -1 when it has no archive."""
    row = db.execute("SELECT max(last) FROM archives WHERE stream = ? AND sealed = 1", (stream_id,)).fetchone()
    return -1 if row is None or row[0] is None else int(row[0])


def sealed_up_to(db: Database, stream: str) -> tuple[int, bytes] | None:
    """The last archived sequence of a stream that still has its contents, and its hash."""
    row = db.execute(
        "SELECT a.last, a.hash, a.removed FROM archives a "  # noqa: S608 - the words are ours
        f"WHERE a.stream = {_THE_STREAM} AND a.sealed = 1 ORDER BY a.first DESC LIMIT 1",
        (stream,),
    ).fetchone()
    return None if row is None or row[2] is not None else (row[0], row[1])


class Shelved(msgspec.Struct, frozen=True):
    """A sealed archive and its stream's name, for who reads all streams in written order."""

    stream: str
    first: int
    last: int
    low: int
    places: bytes
    data: bytes | None

    def positions(self) -> list[tuple[int, bytes]]:
        """The position and the hash of each record."""
        return list(_PLACE.iter_unpack(self.places))

    def contents(self) -> list[Kept]:
        return _contents(self.stream, self.first, self.last, self.places, self.data)


def shelved(db: Database, after: int, end: int, *, removed: bool) -> Iterator[Shelved]:
    """The archives with a record behind the position `after` and one before `end`, by their first position; with those
    that were removed, or without."""
    low = -1
    while keys := db.execute(
        "SELECT low, stream, first FROM archives WHERE high > ? AND low > ? AND low < ? AND sealed = 1 "  # noqa: S608
        f"{'' if removed else 'AND removed IS NULL '}ORDER BY low LIMIT {_CHUNK}",
        (after, low, end),
    ).fetchall():
        for low, stream, first in keys:  # noqa: B007 - the last one is where the next keys begin
            row = db.execute(
                "SELECT s.name, a.first, a.last, a.low, a.places, a.data FROM archives a "
                "JOIN streams s ON s.id = a.stream WHERE a.stream = ? AND a.first = ?",
                (stream, first),
            ).fetchone()
            yield Shelved(*row)


def place_of(db: Database, stream: str, seq: int) -> tuple[int, bytes] | None:
    """The position and the hash of an archived record."""
    row = db.execute(
        "SELECT a.first, a.places FROM archives a "  # noqa: S608 - the words are ours
        f"WHERE a.stream = {_THE_STREAM} AND a.sealed = 1 AND ? BETWEEN a.first AND a.last",
        (stream, seq),
    ).fetchone()
    if row is None:
        return None
    position, hash = _PLACE.unpack_from(row[1], (seq - row[0]) * _PLACE.size)
    return position, hash
