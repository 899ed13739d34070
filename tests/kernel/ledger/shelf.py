"""Ledgers on PostgreSQL that tests have done with, emptied for the tests that come next.

To make the tables of one costs the server more than most tests do.
"""

from __future__ import annotations

import atexit
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psycopg

from forestay.kernel.ledger import Projection

OWNER = "FORESTAY_TEST_OWNER"  # the process that runs the tests
Tables = tuple[tuple[str, int, str], ...]
# Tables that have grown are made anew; to delete the few rows of the others costs less.
_EMPTY = """
    DO $$
    DECLARE t record;
    BEGIN
        SET LOCAL session_replication_role = replica;
        FOR t IN SELECT c.oid::regclass AS name, pg_relation_size(c.oid) AS size FROM pg_class c
            WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r'
            AND c.relname NOT IN ('migrations', 'projections', 'numbering')
        LOOP
            IF t.size > 65536 THEN EXECUTE 'TRUNCATE ' || t.name;
            ELSIF t.size > 0 THEN EXECUTE 'DELETE FROM ' || t.name;
            END IF;
        END LOOP;
        UPDATE {schema}.numbering SET base = 0;
    END $$
"""
# How many processes that a test started have opened a ledger, and whether records still cannot be changed.
_SPOILT = """
    SELECT (SELECT count(*) FROM public.opened_elsewhere WHERE name = %s), (SELECT count(*) FROM pg_trigger t
        JOIN pg_class c ON c.oid = t.tgrelid WHERE t.tgname = 'records_stay' AND c.relnamespace = to_regnamespace(%s))
"""


class Shelf:
    """The emptied ledgers of one process that runs tests. What other processes opened does not come back: one that was
    killed may have a statement under way."""

    def __init__(self, address: str) -> None:
        self._connection = psycopg.connect(address, autocommit=True)
        self._connection.execute("CREATE TABLE IF NOT EXISTS public.opened_elsewhere (name TEXT PRIMARY KEY)")
        atexit.register(self._connection.close)
        os.environ[OWNER] = str(os.getpid())
        self._free: dict[Tables, list[str]] = {}
        self._taken: dict[str, tuple[Path, Tables | None]] = {}
        self._open: Counter[str] = Counter()

    def opened(self, schema: str, path: Path, projections: Sequence[Projection]) -> None:
        """A test opens a ledger: it gets the tables of an earlier one, where one with the same tables is left."""
        self._open[schema] += 1
        tables = tuple((item.name, item.version, item.schema) for item in projections)
        if schema in self._taken:
            if self._taken[schema][1] != tables:  # it has the tables of both by now
                self._taken[schema] = (path, None)
            return
        self._taken[schema] = (path, tables)
        made = self._connection.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone()
        if made == (None,) and (free := self._free.get(tables)):  # a process that the test started may have made it
            self._connection.execute(f"ALTER SCHEMA {free.pop()} RENAME TO {schema}".encode())

    def closed(self, schema: str) -> None:
        self._open[schema] -= 1

    def give_back(self, folder: Path) -> None:
        """A test is over, and nobody comes back to what it left in its folder."""
        for schema, (path, tables) in list(self._taken.items()):
            if not path.is_relative_to(folder):
                continue
            del self._taken[schema]
            is_open = self._open.pop(schema, 0) > 0
            if tables is None or is_open or self._connection.execute(_SPOILT, (schema, schema)).fetchone() != (0, 1):
                continue
            self._connection.execute(_EMPTY.format(schema=schema).encode())
            self._connection.execute(f"ALTER SCHEMA {schema} RENAME TO free_{schema}".encode())
            self._free.setdefault(tables, []).append(f"free_{schema}")


def is_elsewhere() -> bool:
    """Whether a test has started this process."""
    return os.environ.get(OWNER, "") != str(os.getpid())


def open_elsewhere(address: str, schema: str) -> None:
    """Say that a process which a test started opens a ledger."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("INSERT INTO public.opened_elsewhere VALUES (%s) ON CONFLICT DO NOTHING", (schema,))
