"""The SQLite file under a ledger: its opening, migrations and failures."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from importlib import resources
from pathlib import Path

from forestay.kernel.folders import kept_in
from forestay.kernel.ledger.projections import digest
from forestay.kernel.ledger.tables import check_version
from forestay.kernel.problems import Problem

SQLITE_VERSION = sqlite3.sqlite_version
_FAILURES = {
    sqlite3.SQLITE_FULL: ("ledger_full", "The disk is full; nothing was written."),
    sqlite3.SQLITE_READONLY: ("ledger_read_only", "The ledger file cannot be written."),
    sqlite3.SQLITE_PERM: ("ledger_read_only", "The ledger file cannot be written."),
    sqlite3.SQLITE_BUSY: ("ledger_locked", "Another process holds the ledger."),
    sqlite3.SQLITE_LOCKED: ("ledger_locked", "Another connection holds the ledger."),
    sqlite3.SQLITE_CORRUPT: ("ledger_corrupt", "The ledger file is damaged."),
    sqlite3.SQLITE_NOTADB: ("ledger_corrupt", "The file is not a ledger."),
    sqlite3.SQLITE_IOERR: ("ledger_io", "The disk failed."),
    sqlite3.SQLITE_CANTOPEN: ("ledger_io", "The ledger file cannot be opened."),
}


def as_problem(error: sqlite3.Error) -> Problem:
    """Return the Problem that a failure of SQLite means to a caller."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    key, message = _FAILURES.get(code & 0xFF, ("ledger_io", "The ledger's database failed."))
    problem = Problem(key, message, sqlite=getattr(error, "sqlite_errorname", type(error).__name__))
    problem.__cause__ = error
    return problem


def is_failure_of_disk(error: Exception) -> bool:
    """Whether the file failed, and not just the statement."""
    return isinstance(error, sqlite3.Error) and (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in _FAILURES


class SqliteFile:
    """One ledger file: makes connections, and knows whether it may be written."""

    def __init__(self, path: Path, *, lock_timeout: float) -> None:
        self.path = path
        self.lock_timeout = lock_timeout
        with kept_in(path.parent):
            self.read_only = path.exists() and not os.access(path, os.W_OK)

    def create(self) -> None:
        """Create the file if it is missing, and bring its tables up to date."""
        if self.read_only:
            return
        try:
            with kept_in(self.path.parent):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))  # readable by its owner only
            with closing(self.writer()) as connection:
                _migrate(connection)
        except sqlite3.Error as error:
            raise as_problem(error) from error

    def writer(self) -> sqlite3.Connection:
        """Return the connection that appends; a transaction is durable when COMMIT returns."""
        connection = self._connect(
            "rw" if self.path.exists() else "rwc",
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "PRAGMA fullfsync=ON",
            "PRAGMA checkpoint_fullfsync=ON",
            "PRAGMA journal_size_limit=67108864",
            "PRAGMA wal_autocheckpoint=0",  # the writer does it after it has answered
        )
        connection.create_function("digest", 3, digest, deterministic=True)
        return connection

    def reader(self) -> sqlite3.Connection:
        """Return a connection that can only read; it works in a read-only folder too."""
        setup = ("SELECT 1 FROM streams LIMIT 1", "PRAGMA query_only=ON", "PRAGMA mmap_size=268435456")
        try:
            return self._connect("ro", *setup)
        except sqlite3.OperationalError as error:
            if (getattr(error, "sqlite_errorcode", 0) & 0xFF) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            return self._connect("ro&immutable=1", *setup)

    def _connect(self, mode: str, *setup: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            timeout=self.lock_timeout,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            for statement in setup:
                connection.execute(statement).fetchall()
        except BaseException:
            connection.close()
            raise
        return connection


def _migrate(connection: sqlite3.Connection) -> None:
    """Apply the missing numbered files under migrations/, each in its own transaction."""
    files = sorted(
        (item for item in resources.files(__package__).joinpath("migrations").iterdir() if item.name.endswith(".sql")),
        key=lambda item: item.name,
    )
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    check_version(version, len(files))
    for number, item in enumerate(files[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE;\n{item.read_text('utf-8')}\nPRAGMA user_version={number};\nCOMMIT;")


def sqlite_fault() -> str | None:
    """Return why this Python's SQLite cannot hold a ledger; None when it can.

    STRICT tables need 3.37; WAL mode is tried with a real file.
    """
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder) / "try.db")) as connection:
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    good = sqlite3.sqlite_version_info >= (3, 37) and mode == "wal"
    return None if good else f"{SQLITE_VERSION}, journal mode {mode}"
