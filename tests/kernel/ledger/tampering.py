"""What only somebody can do who has the ledger's database."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from forestay.kernel.ledger.postgres_server import PgServer


def unlock(file: sqlite3.Connection) -> None:
    """The database refuses to change records, until somebody who may change its schema says otherwise."""
    for name in ("records_stay", "records_remain", "archives_stay", "archives_remain"):
        file.execute(f"DROP TRIGGER IF EXISTS {name}")


def change(path: Path | str, sql: str) -> None:
    """Do what only one who has the database can do."""
    if isinstance(path, Path):
        with contextlib.closing(sqlite3.connect(path)) as file:
            unlock(file)
            file.execute(sql)
            file.commit()
        return
    with PgServer(path, lock_timeout=1).connect() as connection:
        for table in ("records", "archives"):
            for name in (f"{table}_stay", f"{table}_remain"):
                connection.execute(f"DROP TRIGGER IF EXISTS {name} ON {table}".encode())
        connection.execute(sql.replace("zeroblob(32)", "'\\x00'").replace("x'7b7d'", "'\\x7b7d'"))
