"""Moving records between ledgers as lines of JSON, hashes included."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from forestay.kernel import canonical
from forestay.kernel.ledger.records import MAX_PAYLOAD_BYTES, Projection, Record, check_stream, hash_of
from forestay.kernel.ledger.rows import insert_records, move_head, stream_row
from forestay.kernel.problems import Problem

# Where each stream stands while lines come in: its id, its head and that record's hash.
_Heads = dict[str, tuple[int, int, str]]


def take_in(tx: sqlite3.Connection, lines: Iterable[bytes], projections: Sequence[Projection]) -> int:
    """Write every line's record, checking that each continues its stream and matches its hash.

    A projection that is not among `projections` did not see them: it is built again when it is next opened (L6).
    """
    heads: _Heads = {}
    count = 0
    cursor = tx.cursor()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = canonical.decode(line, Record, limit=MAX_PAYLOAD_BYTES + 4096)
        _check(cursor, heads, record, number)
        _insert(cursor, heads, record)
        for projection in projections:
            if record.stream.startswith(projection.prefix):
                projection.apply(cursor, record)
        count += 1
    for stream_id, head, digest in heads.values():
        move_head(cursor, stream_id, head, bytes.fromhex(digest))
    known = [(row[0],) for row in cursor.execute("SELECT name FROM projections")]
    seeing = {projection.name for projection in projections}
    cursor.executemany("DELETE FROM projections WHERE name = ?", [row for row in known if row[0] not in seeing])
    return count


def statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit behind our back."""
    pending = ""
    for part in script.split(";"):
        pending += part + ";"
        if sqlite3.complete_statement(pending) and pending.strip(" \n\t;"):
            yield pending
            pending = ""


def _check(cursor: sqlite3.Cursor, heads: _Heads, record: Record, line: int) -> None:
    check_stream(record.stream)
    if record.stream not in heads:
        number, last, digest = stream_row(cursor, record.stream)
        heads[record.stream] = (number, last, digest.hex())
    _, head, hash = heads[record.stream]
    if record.seq != head + 1 or record.prev != hash:
        raise Problem(
            "ledger_conflict",
            f"Line {line} does not continue the stream {record.stream}, which stands at {head}.",
            stream=record.stream,
            seq=record.seq,
            line=line,
        )
    if hash_of(record).hex() != record.hash:
        raise Problem(
            "chain_broken",
            f"Line {line} does not match its hash.",
            stream=record.stream,
            seq=record.seq,
            line=line,
        )


def _insert(cursor: sqlite3.Cursor, heads: _Heads, record: Record) -> None:
    stream_id = heads[record.stream][0]
    payload, attrs = canonical.encode(record.payload), canonical.encode(record.attrs) if record.attrs else None
    insert_records(
        cursor,
        [(stream_id, record.seq, record.id, record.type, record.ts, payload, attrs, bytes.fromhex(record.hash))],
    )
    heads[record.stream] = (stream_id, record.seq, record.hash)
