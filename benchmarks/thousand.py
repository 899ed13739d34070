"""A thousand workers, a hundred databases and a billion records a day: `python -m benchmarks thousand`.

It measures the cost of a record, a beat, a look and a hint on this machine. From that it computes how much of each
resource is in use at each factor of ten, and which resource runs out first. `COSTS` are the costs of one run, on two
cores that others also used; `docs/explanation/a-thousand-workers.md` explains the results.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import psycopg
from tests.postgres import Server, new_server

from benchmarks import fleet
from forestay.kernel import Ledger
from forestay.runs import QUEUE, projections

DAY = 86_400
PEAK = 3.0  # the load of the busiest second, as a multiple of the average
BEATS, LOOKS, HINTS = 1 / 0.8, 1 / 0.25, 1 / 0.01  # per second and process; of hints, the most
DATABASE_CORES, WORKER_CORES = 32, 2
MOST_CONNECTIONS, CONNECTIONS = 5_000, 10  # of a server, of a process
COMMITS = 2_000.0  # per second, for a disk that takes half a millisecond
DISK, KEPT_DAYS = 4e12, 30  # bytes; after these days, records go to an archive in object storage
_TIMES = 300


class Costs(NamedTuple):
    """The costs of one record or one process, in seconds of one core."""

    database_record: float  # the database's, of a record with its projections
    worker_record: float
    record_bytes: float  # in tables and indexes
    group: float  # records that one commit carries under load
    beat: float  # the database's
    look: float  # the database's, for runs that are due
    hint: float  # the database's, to tell one listener of one batch


COSTS = Costs(0.000_21, 0.000_44, 1_070, 14, 0.000_43, 0.000_57, 0.000_032)


class Fleet(NamedTuple):
    workers: int
    databases: int
    records: float  # a day


class Use(NamedTuple):
    """A resource, and the share of it that is in use."""

    resource: str
    share: float


STEPS = (
    Fleet(1, 1, 1e5),
    Fleet(2, 1, 1e6),
    Fleet(10, 1, 1e7),
    Fleet(100, 1, 1e8),
    Fleet(1_000, 1, 1e9),
    Fleet(1_000, 10, 1e9),
    Fleet(1_000, 100, 1e9),
)


def uses(fleet: Fleet, costs: Costs = COSTS) -> list[Use]:
    """Return the use of each resource in the busiest second, the scarcest first. Tenants are spread evenly over the
    databases, and each worker works for one database."""
    records = PEAK * fleet.records / DAY / fleet.databases
    workers = max(1.0, fleet.workers / fleet.databases)
    batches = workers * min(HINTS, records / costs.group / workers)
    told = batches * (workers - 1) * costs.hint  # every other process gets a hint for every batch
    living = workers * (BEATS * costs.beat + LOOKS * costs.look)
    found = [
        Use("records on the database's processor", records * costs.database_record / DATABASE_CORES),
        Use("beats and looks on the database's processor", living / DATABASE_CORES),
        Use("hints on the database's processor", told / DATABASE_CORES),
        Use("the database's commits", records / costs.group / COMMITS),
        Use("the database's connections", workers * CONNECTIONS / MOST_CONNECTIONS),
        Use("the database's disk", KEPT_DAYS * fleet.records / fleet.databases * costs.record_bytes / DISK),
        Use("the workers' processors", records * costs.worker_record / workers / WORKER_CORES),
    ]
    return sorted(found, key=lambda use: -use.share)


def rows(costs: Costs = COSTS) -> Iterator[fleet.Row]:
    """Yield the scarcest resource of each step, and the next two."""
    for step in STEPS:
        first, second, third, *_ = uses(step, costs)
        what = f"{step.records:,.0f} records a day, {step.workers:,} worker(s), {step.databases} database(s)"
        yield what, _told(first), f"{_told(second)}, {_told(third)}"


def _told(use: Use) -> str:
    return f"{use.resource}: {use.share:.1%}"


# Measuring


def measured(server: Server) -> Costs:
    address = f"{server.address}{'&' if '?' in server.address else '?'}schema=thousand"
    found = fleet.throughput(address, "five", 1, server.seconds)
    with psycopg.connect(server.address) as connection:
        connection.execute("SET search_path TO thousand")
        ((records, commits, runs),) = connection.execute(
            "SELECT count(*), count(DISTINCT pos >> 20), count(DISTINCT stream) FROM records "
            "WHERE stream IN (SELECT id FROM streams WHERE name LIKE 'run/%')"
        ).fetchall()
        ((size,),) = connection.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
            "WHERE relnamespace = 'thousand'::regnamespace AND relkind = 'r'"
        ).fetchall()
    each = records / runs
    return Costs(
        database_record=found["database"] / 1000 / each,
        worker_record=found["worker"] / 1000 / each,
        record_bytes=float(size) / records,
        group=records / commits,
        hint=_hint(server),
        **asyncio.run(_living(address, server)),
    )


async def _living(address: str, server: Server) -> dict[str, float]:
    async with Ledger.open(address, projections=projections()) as ledger:
        workers = ledger.workers("one", QUEUE)
        assert workers is not None
        try:
            workers.start(lambda _beat: None)
            now = time.time_ns() // 1_000_000
            beat = _each(server, lambda: workers.beat())
            look = _each(server, lambda: (workers.claim(now, 64), workers.due(now, 1000)))
        finally:
            workers.close()
        return {"beat": beat, "look": look}


def _hint(server: Server, listeners: int = 20) -> float:
    """Return the cost of a hint to one listener: notices to twenty listeners, less notices to none."""
    with ExitStack() as stack:
        talking = stack.enter_context(psycopg.connect(server.address, autocommit=True))

        def tell() -> None:
            talking.execute("SELECT pg_notify('heard', 'run/01m7jtkhc7dhw9wskggf4g4fzv')")

        alone = _each(server, tell)
        for _ in range(listeners):
            stack.enter_context(psycopg.connect(server.address, autocommit=True)).execute("LISTEN heard")
        return max(0.0, _each(server, tell) - alone) / listeners


def _each(server: Server, work: Callable[[], object]) -> float:
    """Return the database's processor seconds for one of many calls."""
    begun = server.seconds()
    for _ in range(_TIMES):
        work()
    return (server.seconds() - begun) / _TIMES


def run() -> Iterator[fleet.Row]:
    """(what, figure, note) for the benchmark report."""
    server = new_server()
    try:
        costs = measured(server)
    finally:
        server.stop()
    ms = {name: f"{1000 * getattr(costs, name):.3f} ms" for name in ("database_record", "worker_record")}
    us = {name: f"{1e6 * getattr(costs, name):.0f} µs" for name in ("beat", "look", "hint")}
    note = f"{ms['database_record']} of the database"
    yield "a record of a five-step run", f"{ms['worker_record']} of the worker", note
    yield "a record on disk", f"{costs.record_bytes:,.0f} bytes", f"{costs.group:.1f} records a commit"
    yield "a beat, a look, a hint to one listener", ", ".join(us.values()), "of the database's processor"
    yield from rows(costs)


if __name__ == "__main__":
    for what, figure, note in run():
        print(f"{what}\n    {figure}\n    {note}", flush=True)
