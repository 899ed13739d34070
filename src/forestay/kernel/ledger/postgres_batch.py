"""Turns one transaction of a ledger on PostgreSQL into statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any

from forestay.kernel.ledger.postgres_pipe import Statement, blobs, numbers, texts, value_of
from forestay.kernel.ledger.postgres_server import PLACES
from forestay.kernel.ledger.records import Record, Row, Tail
from forestay.kernel.problems import Problem

_MAKE = (
    "INSERT INTO streams (id, name, head, hash) OVERRIDING SYSTEM VALUE "
    "SELECT * FROM unnest(?::bigint[], ?::text[], ?::bigint[], ?::bytea[])"
)
# Divides by zero, and so fails, when a head is not the expected one.
_MOVE = """
    WITH moved AS (
        UPDATE streams s SET head = n.head, hash = n.hash
        FROM unnest(?::bigint[], ?::bigint[], ?::bytea[], ?::bigint[], ?::bytea[]) n(id, old, prev, head, hash)
        WHERE s.id = n.id AND s.head = n.old AND s.hash = n.prev RETURNING 1
    )
    SELECT 1 / (count(*) = ?::bigint)::int FROM moved
"""
_INSERT = f"""
    INSERT INTO records (stream, seq, id, type, ts, payload, attrs, hash, pos)
    SELECT r.stream, r.seq, r.id, r.type, r.ts, r.payload, r.attrs, r.hash,
        ((pg_current_xact_id()::text::bigint + n.base) << {PLACES}) + r.place - 1
    FROM numbering n, unnest(?::bigint[], ?::bigint[], ?::text[], ?::text[], ?::bigint[], ?::bytea[], ?::bytea[],
        ?::bytea[]) WITH ORDINALITY r(stream, seq, id, type, ts, payload, attrs, hash, place)
"""  # noqa: S608 - the number is ours


class Statements:
    """Collects the statements of a projection until its whole ticket can be written; they return nothing (D6)."""

    def __init__(self) -> None:
        self.kept: list[Statement] = []

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> None:
        self.kept.append(Statement(text, [value_of(value) for value in parameters]))

    def executemany(self, text: str, parameters: Iterable[Sequence[Any]], /) -> None:
        for row in parameters:
            self.execute(text, row)


class Batch:
    """The content of one transaction. `tails` are the ends of its streams; `new` names those that it creates."""

    def __init__(self, tails: dict[str, Tail], new: frozenset[str] = frozenset()) -> None:
        self.tails = tails
        self.before = {name: copy(tail) for name, tail in tails.items()}
        self._new = new
        self.rows: list[Row] = []
        self.records: list[Record] = []
        self._told: list[Statement] = []

    def add(self, rows: list[Row], records: list[Record], statements: Statements) -> None:
        self.rows += rows
        self.records += records
        self._told += statements.kept

    def ends(self) -> dict[str, Tail]:
        """Return the tails of the streams that it writes to."""
        return {record.stream: self.tails[record.stream] for record in self.records}

    def statements(self) -> Iterator[Statement]:
        touched = sorted(self.ends())
        new = [self.tails[name] for name in touched if name in self._new]
        if new:
            yield Statement(
                _MAKE,
                (
                    numbers(tail.id for tail in new),
                    texts(tail.name for tail in new),
                    numbers(tail.seq for tail in new),
                    blobs(tail.hash for tail in new),
                ),
            )
        moved = [(self.before[name], self.tails[name]) for name in touched if name not in self._new]
        if moved:
            yield Statement(
                _MOVE,
                (
                    numbers(tail.id for _, tail in moved),
                    numbers(before.seq for before, _ in moved),
                    blobs(before.hash for before, _ in moved),
                    numbers(tail.seq for _, tail in moved),
                    blobs(tail.hash for _, tail in moved),
                    value_of(len(moved)),
                ),
            )
        yield _inserted(self.rows)
        yield from self._told


def _inserted(rows: Sequence[Row]) -> Statement:
    stream, seq, id, type, ts, payload, attrs, hash = zip(*rows, strict=True)
    values = (numbers(stream), numbers(seq), texts(id), texts(type), numbers(ts))
    return Statement(_INSERT, (*values, blobs(payload), blobs(attrs), blobs(hash)))


def check_places(count: int) -> None:
    if count > 1 << PLACES:
        raise Problem(
            "payload_too_large",
            f"One transaction may write {1 << PLACES} records; this one has {count}.",
            limit=1 << PLACES,
            observed=count,
            fix="Write them in several parts.",
        )
