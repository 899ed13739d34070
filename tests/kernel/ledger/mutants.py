"""Small mistakes in the ledger, of the kind that a reader does not see. The simulation must find every one of them."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from forestay.kernel import Problem, Record
from forestay.kernel.ledger import sqlite_writer, writer
from forestay.kernel.ledger.sqlite_file import SqliteFile
from forestay.kernel.ledger.writer import Ticket
from tests.kernel.ledger.simulated_disk import SimulatedWriter


def expectation_unchecked(patch: pytest.MonkeyPatch) -> None:
    """An append goes in wherever the stream stands (L4)."""
    patch.setattr(sqlite_writer, "check_expected", lambda stream, expected, actual: None)
    patch.setattr(writer, "check_expected", lambda stream, expected, actual: None)


def commits_unsynced(patch: pytest.MonkeyPatch) -> None:
    """A commit is acknowledged before the disk has it (L2)."""
    real = SqliteFile.writer

    def opened(self: SqliteFile) -> sqlite3.Connection:
        connection = real(self)
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    patch.setattr(SqliteFile, "writer", opened)


def tails_outlive_a_failure(patch: pytest.MonkeyPatch) -> None:
    """The writer remembers where a stream would stand if its last transaction had not failed (L9)."""
    abandon, begin = SimulatedWriter._abandon, SimulatedWriter._begin
    kept: dict[str, Any] = {}

    def abandoned(self: SimulatedWriter) -> None:
        kept.update(self._streams)
        abandon(self)

    def begun(self: SimulatedWriter) -> sqlite3.Connection:
        connection = begin(self)
        self._streams.update(kept)
        kept.clear()
        return connection

    patch.setattr(SimulatedWriter, "_abandon", abandoned)
    patch.setattr(SimulatedWriter, "_begin", begun)


def committed_with_the_next(patch: pytest.MonkeyPatch) -> None:
    """A group is committed when the next one begins (L2)."""
    real = sqlite_writer.SqliteWriter._begin

    class Later:
        """A connection that commits later."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def execute(self, sql: str, *values: Any) -> Any:
            return self._connection.execute("SELECT 1" if sql == "COMMIT" else sql, *values)

    def begin(self: SimulatedWriter) -> Any:
        connection = self._connection
        if isinstance(connection, Later):
            self._connection = connection._connection
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("COMMIT")
        opened = real(self)
        self._connection = Later(opened)  # type: ignore[assignment]
        return self._connection

    patch.setattr(sqlite_writer.SqliteWriter, "_begin", begin)


def tables_see_the_last_record(patch: pytest.MonkeyPatch) -> None:
    """Of several records of a batch a projection is shown the last one (L6)."""
    real = SimulatedWriter._project

    def project(self: SimulatedWriter, cursor: Any, records: list[Record]) -> None:
        real(self, cursor, records[-1:])

    patch.setattr(SimulatedWriter, "_project", project)


def group_answered_as_one(patch: pytest.MonkeyPatch) -> None:
    """A ticket that was refused alone is answered as if it had been written (L4)."""
    real = SimulatedWriter._append_all

    def append_all(self: SimulatedWriter, connection: Any, group: list[Ticket]) -> list[Record]:
        records = real(self, connection, group)
        for ticket in group:
            if isinstance(ticket.error, Problem) and ticket.error.key == "ledger_conflict":
                ticket.error, ticket.result = None, []
        return records

    patch.setattr(SimulatedWriter, "_append_all", append_all)
