"""What a ledger's file says when its process is gone: whether the chains hold, and the tables say what the log says."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from forestay.kernel import Projection
from forestay.kernel.ledger import tables, verify
from forestay.kernel.ledger.projections import digest


def chains(path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(path)) as db:
        found = verify.verify(db, "", {}, lambda error: False)
    yield from (f"V4 {fault.stream} {fault.seq}: {fault.what}" for fault in found.faults)


def rebuilt_tables(path: Path, projections: Sequence[Projection]) -> Iterator[str]:
    """Each projection, built again from the log in a database of its own."""
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(":memory:")) as fresh:
        fresh.create_function("digest", 3, digest, deterministic=True)
        records = [record for _, record in tables.read_all(db, "", 0, 1_000_000)]
        for projection in projections:
            fresh.executescript(projection.schema)
        for record in records:
            for projection in projections:
                if record.stream.startswith(projection.prefix):
                    projection.apply(fresh, [record])
        for (name,) in fresh.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            question = f'SELECT * FROM "{name}"'
            if sorted(db.execute(question), key=repr) != sorted(fresh.execute(question), key=repr):
                yield f"V4 the table {name} does not say what the log says"
