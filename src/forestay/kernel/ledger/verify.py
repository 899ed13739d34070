"""Checks the chains: every record's hash, every sequence and every head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from forestay.kernel.ledger import archives
from forestay.kernel.ledger.projections import Database
from forestay.kernel.ledger.records import GENESIS, Fault, Head, Verification, link
from forestay.kernel.ledger.tables import hash_at
from forestay.kernel.problems import Problem

_MOST_FAULTS = 100
_PAGE = 1000
Unreadable = Callable[[Exception], bool]


def verify(db: Database, prefix: str, trusted: Mapping[str, Head], unreadable: Unreadable) -> Verification:
    """Check every stream under `prefix`; a stream with a trusted head is checked from there on.

    Archived records are checked like others. Of removed records only the hashes remain: the stream `retention` must
    name them, and the last hash must match the next record or the head. `unreadable` tells which exceptions of the
    database mean that a record cannot be read.
    """
    rows = db.execute(
        "SELECT id, name, head, hash FROM streams WHERE substr(name, 1, ?) = ? ORDER BY name", (len(prefix), prefix)
    ).fetchall()
    known = {name for _, name, _, _ in rows}
    faults = [Fault(name, head.seq, "the stream is gone") for name, head in trusted.items() if name not in known]
    told = _told(db)
    counts: Counter[str] = Counter()
    for stream_id, name, head, digest in rows:
        stream = _Stream(db, stream_id, name, Head(head, digest.hex()), told.get(name, {}), counts)
        fault = stream.check(trusted.get(name), unreadable)
        if fault is not None and len(faults) < _MOST_FAULTS:
            faults.append(fault)
    return Verification(len(rows), counts["records"], faults, counts["sealed"], counts["removed"])


def _told(db: Database) -> dict[str, dict[int, str]]:
    """Return what the stream `retention` says was removed: for each stream, the last sequence and its hash."""
    told: dict[str, dict[int, str]] = {}
    row = db.execute("SELECT id FROM streams WHERE name = ?", (archives.RETENTION,)).fetchone()
    for item in () if row is None else _rows(db, row[0], archives.RETENTION, -1):
        if item[2] == archives.REMOVED:
            for stream in msgspec.json.decode(item[4])["streams"]:
                told.setdefault(stream["stream"], {})[stream["last"]] = stream["hash"]
    return told


def _rows(db: Database, stream_id: int, stream: str, after: int) -> Iterator[Any]:
    """Yield a stream's records after a sequence, page by page: a stream may be larger than memory."""
    while page := archives.kept(db, stream, after + 1, None, _PAGE):
        yield from page
        after = page[-1][0]
    while page := db.execute(
        "SELECT seq, id, type, ts, payload, attrs, hash FROM records WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?",
        (stream_id, after, _PAGE),
    ).fetchall():
        yield from page
        after = page[-1][0]


class _Stream:
    """One stream while it is checked."""

    def __init__(
        self, db: Database, id: int, name: str, head: Head, told: Mapping[int, str], counts: Counter[str]
    ) -> None:
        self._db = db
        self._id = id
        self._name = name
        self._json = msgspec.json.encode(name)
        self._head = head
        self._told = told
        self._counts = counts
        self._seq = -1
        self._prev = GENESIS

    def check(self, trusted: Head | None, unreadable: Unreadable) -> Fault | None:
        """Return the first place where the chain is broken."""
        if (fault := self._begin(trusted)) is not None:
            return fault
        try:
            if (fault := self._walk()) is not None:
                return fault
        except (UnicodeError, ValueError):
            return Fault(self._name, self._seq + 1, "the record has invalid text")
        except Problem as problem:  # an archive
            return Fault(self._name, self._seq + 1, problem.message)
        except Exception as error:
            if not unreadable(error):
                raise
            return Fault(self._name, self._seq + 1, "the page with the record cannot be read")
        return self._end()

    def _begin(self, trusted: Head | None) -> Fault | None:
        if trusted is None or trusted.seq < 0:
            return None
        found = hash_at(self._db, self._name, trusted.seq)
        if found is None:
            return Fault(self._name, trusted.seq, "the record of the trusted head is missing")
        if found.hex() != trusted.hash:
            return Fault(self._name, trusted.seq, "the record is not the trusted one")
        self._seq, self._prev = trusted.seq - 1, hash_at(self._db, self._name, trusted.seq - 1) or GENESIS
        return None

    def _walk(self) -> Fault | None:
        gone: int | None = None  # the last removed sequence
        sealed = archives.sealed_last(self._db, self._id)
        for row in _rows(self._db, self._id, self._name, self._seq):
            if row[0] != self._seq + 1:
                return Fault(self._name, self._seq + 1, f"the record is missing; the next one is {row[0]}")
            self._seq = row[0]
            if row[4] is None:
                gone = self._seq
                self._prev = row[6]
                self._counts["removed"] += 1
                continue
            if gone == self._seq - 1 and (fault := self._removed(gone)) is not None:
                return fault
            digest, _ = link(self._json, self._seq, row[1], row[2], row[3], row[4], row[5] or b"{}", self._prev)
            if digest != row[6]:
                return Fault(self._name, self._seq, "the record does not match its hash")
            self._prev = digest
            self._counts["records"] += 1
            self._counts["sealed"] += self._seq <= sealed
        return self._removed(gone) if gone == self._seq and gone is not None else None

    def _removed(self, last: int) -> Fault | None:
        """Return a fault unless the stream `retention` names the removed records."""
        if self._told.get(last) != self._prev.hex():
            return Fault(self._name, last, "the records are gone, and no record says that they were removed")
        return None

    def _end(self) -> Fault | None:
        if self._seq != self._head.seq:
            what = f"the stream's head says {self._head.seq}, its last record is {self._seq}"
            return Fault(self._name, self._seq + 1, what)
        if self._prev.hex() != self._head.hash:
            return Fault(self._name, self._seq, "the stream's head has another hash than its last record")
        return None
