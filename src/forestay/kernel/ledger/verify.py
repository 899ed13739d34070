"""Checking the chains: every record against its hash, every sequence against its neighbour, every head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from forestay.kernel.ledger.projections import Database
from forestay.kernel.ledger.records import GENESIS, Fault, Head, Verification, link
from forestay.kernel.ledger.tables import hash_at

_MOST_FAULTS = 100
_PAGE = 1000
Unreadable = Callable[[Exception], bool]


def verify(db: Database, prefix: str, trusted: Mapping[str, Head], unreadable: Unreadable) -> Verification:
    """Look at every stream under `prefix`; one that has a trusted head is looked at from there on.

    `unreadable` tells which exceptions of the database mean that a record cannot be read.
    """
    rows = db.execute(
        "SELECT id, name, head, hash FROM streams WHERE substr(name, 1, ?) = ? ORDER BY name", (len(prefix), prefix)
    ).fetchall()
    known = {name for _, name, _, _ in rows}
    faults = [Fault(name, head.seq, "the stream is gone") for name, head in trusted.items() if name not in known]
    checked = 0
    for stream_id, name, head, digest in rows:
        count, fault = _check_stream(db, stream_id, name, Head(head, digest.hex()), trusted.get(name), unreadable)
        checked += count
        if fault is not None and len(faults) < _MOST_FAULTS:
            faults.append(fault)
    return Verification(len(rows), checked, faults)


def _rows(db: Database, stream_id: int, after: int) -> Iterator[Any]:
    """A stream's records behind a sequence, page by page: a stream may be larger than memory."""
    while page := db.execute(
        "SELECT seq, id, type, ts, payload, attrs, hash FROM records WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?",
        (stream_id, after, _PAGE),
    ).fetchall():
        yield from page
        after = page[-1][0]


def _check_stream(
    db: Database, stream_id: int, name: str, head: Head, trusted: Head | None, unreadable: Unreadable
) -> tuple[int, Fault | None]:
    """The number of records that hold, and the first place where the chain does not."""
    seq, prev = -1, GENESIS
    if trusted is not None and trusted.seq >= 0:
        row = db.execute("SELECT hash FROM records WHERE stream = ? AND seq = ?", (stream_id, trusted.seq)).fetchone()
        if row is None:
            return 0, Fault(name, trusted.seq, "the record of the trusted head is missing")
        if row[0].hex() != trusted.hash:
            return 0, Fault(name, trusted.seq, "the record is not the one that was trusted")
        seq, prev = trusted.seq - 1, hash_at(db, stream_id, trusted.seq - 1)
    stream = msgspec.json.encode(name)
    checked = 0
    try:
        for row in _rows(db, stream_id, seq):
            if row[0] != seq + 1:
                return checked, Fault(name, seq + 1, f"the record is missing; the next one is {row[0]}")
            seq = row[0]
            digest, _ = link(stream, seq, row[1], row[2], row[3], row[4], row[5] or b"{}", prev)
            if digest != row[6]:
                return checked, Fault(name, seq, "the record does not match its hash")
            prev = digest
            checked += 1
    except (UnicodeError, ValueError):
        return checked, Fault(name, seq + 1, "the record holds text that is not valid")
    except Exception as error:
        if not unreadable(error):
            raise
        return checked, Fault(name, seq + 1, "the page that holds the record cannot be read")
    if seq != head.seq:
        return checked, Fault(name, seq + 1, f"the stream's head says {head.seq}, its last record is {seq}")
    if prev.hex() != head.hash:
        return checked, Fault(name, seq, "the stream's head has another hash than its last record")
    return checked, None
