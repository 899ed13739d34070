"""`forestay migrate`: bring the tables of a shared ledger up to date before the hosts of a new version start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from forestay.cli.command import answers
from forestay.cli.data_folder import Database, database_flag, no_database
from forestay.cli.output import Answer
from forestay.kernel import config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forestay.kernel import Lacking


@answers("migrate")
async def migrate(
    database: Database = None,
    check: Annotated[bool, typer.Option("--check", help="Say what would change, and change nothing.")] = False,
) -> Answer:
    """Bring the tables of a PostgreSQL ledger up to date, one process at a time and forward only. Where tables change,
    hosts of another version must be stopped; records are never changed. A host does the same at its start."""
    from forestay.host import host_tables
    from forestay.kernel import Ledger, lacking
    from forestay.surface import KeyTable

    address = config.load(flags=database_flag(database)).config.data.ledger
    if "://" not in address:
        raise no_database(
            "Only a ledger on PostgreSQL is brought up to date by itself: a host does it for its own file."
        )
    tables = [*host_tables(), KeyTable()]
    found = await asyncio.to_thread(lacking, address, tables)
    if not check:
        opened = await asyncio.to_thread(lambda: Ledger.open(address, projections=tables))
        await asyncio.to_thread(opened.close)
    return Answer({"migrated": not check, "found": found}, human=_lines(found, check))


def _lines(found: Lacking, check: bool) -> Iterator[str]:
    if found.schema == found.needed and not found.tables:
        yield f"Nothing to do: schema {found.schema}, and every table is of this version."
        return
    verb = "would be" if check else "was"
    if found.schema != found.needed:
        yield f"The schema {verb} brought from {found.schema} to {found.needed}; older processes go on beside it."
    if found.tables:
        yield f"Built from the records: {', '.join(found.tables)}."
    if found.tables and found.living and check:
        yield f"Stop these first: {', '.join(found.living)}."
