"""The vault of a ledger on PostgreSQL: a table of the same schema.

Destroying a key deletes its row and vacuums the table. The server's write-ahead log and backups are the operator's
responsibility: they keep the key until they are deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg

from forestay.kernel.ambient import Randomness
from forestay.kernel.cipher import KEY_BYTES
from forestay.kernel.ledger.postgres_dialect import Connection
from forestay.kernel.ledger.postgres_server import PgServer, as_problem
from forestay.kernel.ledger.vault import check_name

T = TypeVar("T")


class PgVault:
    """A `Vault` in a table."""

    def __init__(self, server: PgServer) -> None:
        self._server = server

    async def keep(self, name: str, key: bytes) -> bytes:
        def work(connection: Connection) -> bytes:
            connection.execute("INSERT INTO vault VALUES (%s, %s) ON CONFLICT DO NOTHING", (check_name(name), key))
            rows = connection.execute("SELECT key FROM vault WHERE name = %s", (name,)).fetchall()
            return bytes(rows[0][0])

        return await self._on_server(work)

    async def fresh(self, prefix: str, randomness: Randomness) -> tuple[str, bytes]:
        name = prefix + randomness.bytes(16).hex()
        return name, await self.keep(name, randomness.bytes(KEY_BYTES))

    async def get(self, names: Sequence[str]) -> dict[str, bytes]:
        def work(connection: Connection) -> dict[str, bytes]:
            rows = connection.execute("SELECT name, key FROM vault WHERE name = ANY(%s)", (list(names),)).fetchall()
            return {name: bytes(key) for name, key in rows}

        return await self._on_server(work) if names else {}

    async def destroy(self, names: Sequence[str]) -> None:
        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM vault WHERE name = ANY(%s)", (list(names),))
            connection.execute("VACUUM vault")

        if names:
            await self._on_server(work)

    async def names(self, prefix: str) -> list[str]:
        def work(connection: Connection) -> list[str]:
            rows = connection.execute(
                "SELECT name FROM vault WHERE starts_with(name, %s) ORDER BY name", (prefix,)
            ).fetchall()
            return [row[0] for row in rows]

        return await self._on_server(work)

    async def _on_server(self, work: Callable[[Connection], T]) -> T:
        """Do `work` on a new connection: keys are few and seldom needed."""

        def connected() -> T:
            try:
                with self._server.connect() as connection:
                    return work(connection)
            except psycopg.Error as error:
                raise as_problem(error) from error

        return await asyncio.to_thread(connected)
