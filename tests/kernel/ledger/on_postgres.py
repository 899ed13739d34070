"""A projection's tables in a PostgreSQL that holds no records: for tests that compare them with others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from forestay.kernel.ledger import Ledger, Projection
from forestay.kernel.ledger.postgres_dialect import Database, table
from forestay.kernel.ledger.postgres_server import PgServer
from forestay.kernel.ledger.projections import _TABLE, Page, build
from tests.postgres import new_ledger


@contextmanager
def empty_schema() -> Iterator[Database]:
    address = new_ledger()
    Ledger.open(address).close()
    with PgServer(address, lock_timeout=5).connect() as connection:
        yield Database(connection)


def built(database: Database, projection: Projection, page: Page) -> list[str]:
    """Build a projection of the records that `page` reads; the names of its tables."""
    build(database, projection, page, table)
    return list(_TABLE.findall(projection.schema))
