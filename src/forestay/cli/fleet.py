"""`forestay fleet`: the processes that share a ledger, and the runs that each carries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from forestay.cli.command import answers
from forestay.cli.data_folder import Database, database_flag, no_database
from forestay.cli.output import Answer
from forestay.kernel import Problem, config, iso, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forestay.kernel import Worker

_TOLD = 20  # events


@answers("fleet")
async def fleet(
    database: Database = None,
) -> Answer:
    """The processes that share a ledger on PostgreSQL: which live, since when, and how many runs each carries. One
    that died is shown for an hour. Below them, newest first: who joined, left, lapsed and took over."""
    from forestay.kernel import Ledger
    from forestay.runs import FLEET, QUEUE

    address = config.load(flags=database_flag(database)).config.data.ledger
    if not address:
        raise _alone()
    async with await asyncio.to_thread(Ledger.open, address) as opened:
        workers = opened.workers("", QUEUE)
        if workers is None:
            raise _alone()
        try:
            found = await asyncio.to_thread(workers.listed)
        finally:
            workers.close()
        told = [
            {"type": record.type, "at": iso(record.ts), **record.payload}
            for record in await opened.read(FLEET, 0, _TOLD, reverse=True)
        ]
    return Answer({"workers": found, "events": told}, human=_lines(found, told))


def _alone() -> Problem:
    return no_database("Only a ledger on PostgreSQL is shared.")


def _lines(found: list[Worker], told: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        yield "No process has this ledger open."
    for item in found:
        about = item.about
        state = f"since {iso(item.since)}" if item.alive else "gone"
        serves = one_line(str(about.get("url", "serves no callers")))
        place = one_line(f"{about.get('machine', '?')} pid {about.get('pid', '?')} {about.get('version', '')}")
        yield f"{item.name:<32} {state:<31} {item.carries:>7} runs  {serves}  {place}"
    for event in told:
        more = f" {event['runs']} runs of {event['before']}" if event["type"] == "worker.took_over" else ""
        yield one_line(f"{event['at']}  {event['name']} {event['type'].removeprefix('worker.')}{more}")
