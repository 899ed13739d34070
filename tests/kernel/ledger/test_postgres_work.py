"""K1 to K5: who has which piece of work, with real processes that are killed."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from forestay.kernel.ledger import Draft, Ledger
from forestay.kernel.ledger.postgres_server import PgServer
from forestay.kernel.ledger.postgres_work import PgWork
from forestay.kernel.problems import Problem
from tests.postgres import new_ledger


@pytest.fixture
def address() -> str:
    return new_ledger()


@pytest.fixture
def two(address: str) -> Iterator[tuple[PgWork, PgWork]]:
    workers = PgWork(address, "a"), PgWork(address, "b")
    for worker in workers:
        worker.beat()
    yield workers
    for worker in workers:
        worker.close()


def end_lease(address: str, worker: str) -> None:
    """As if its lease had run out: time is the database's, and tests do not wait for it."""
    with PgServer(address, lock_timeout=1).connect() as connection:
        connection.execute("UPDATE workers SET until = clock_timestamp() - interval '1 ms' WHERE name = %s", (worker,))


def test_k1_a_piece_has_one_owner_until_it_is_given_back(two: tuple[PgWork, PgWork]) -> None:
    a, b = two
    a.wake([("r1", "acme", 0), ("r2", "acme", 0)])
    assert {piece.key for piece in a.claim(10)} == {"r1", "r2"}
    assert b.claim(10) == [] and b.free() == []
    assert b.owner("r1") == "a"
    a.leave()
    assert b.owner("r1") is None
    assert len(b.claim(10)) == 2


def test_k1_what_a_dead_worker_had_goes_to_another(two: tuple[PgWork, PgWork], address: str) -> None:
    a, b = two
    a.wake([("r1", "acme", 0)])
    (mine,) = a.claim(1)
    end_lease(address, "a")
    assert b.free() == ["r1"]
    assert [piece.key for piece in b.claim(1)] == ["r1"]
    assert a.claim(1) == [], "a worker without a lease claims nothing"
    assert a.beat() is False
    assert a.give_back([(mine, None)]) == set(), "it is not its to give back"
    assert b.owner("r1") == "b"


def test_k3_a_wake_up_while_a_piece_is_worked_on_is_not_lost(two: tuple[PgWork, PgWork]) -> None:
    a, b = two
    a.wake([("r1", "acme", 0)])
    (piece,) = a.claim(1)
    b.wake([("r1", "acme", 0)])
    assert b.claim(1) == []
    assert a.give_back([(piece, None)]) == {"r1"}
    (again,) = b.claim(1)
    assert again.generation == piece.generation + 1
    b.give_back([(again, None)])
    assert a.claim(1) == []


def test_k3_what_is_due_later_does_not_keep_what_is_due_now(two: tuple[PgWork, PgWork]) -> None:
    a, _ = two
    a.wake([("r1", "acme", 3600)])
    assert a.claim(1) == []
    a.wake([("r1", "acme", 0)])
    (piece,) = a.claim(1)
    a.give_back([(piece, 3600)])
    assert a.claim(1) == []


def test_k4_a_tenant_with_a_backlog_does_not_keep_the_others_waiting(two: tuple[PgWork, PgWork]) -> None:
    a, b = two
    a.wake([(f"big-{number}", "big", -1000) for number in range(500)])
    a.wake([(f"{name}-{number}", name, 0) for name in ("alpha", "zeta", "zoe") for number in range(3)])
    served = Counter(piece.tenant for piece in [*a.claim(9), *b.claim(9)])
    assert served["alpha"] == served["zeta"] == served["zoe"] == 3


def test_k4_tenants_take_turns_when_there_is_room_for_few(two: tuple[PgWork, PgWork]) -> None:
    a, _ = two
    tenants = [f"t{number}" for number in range(10)]
    served: Counter[str] = Counter()
    for _ in range(20):  # each tenant always has more
        a.wake([(f"{tenant}-{random.random()}", tenant, 0) for tenant in tenants])
        served.update(piece.tenant for piece in a.claim(3, each=1))
    assert set(served) == set(tenants)
    assert max(served.values()) - min(served.values()) <= 1


WORKER = """
import random, sys, time
from forestay.kernel.ledger.postgres_work import PgWork

work, chance = PgWork(sys.argv[1], sys.argv[2], lease=1.0), random.Random(sys.argv[2])
work.beat()
print("ready", flush=True)
while True:
    work.beat()
    work.free()
    pieces = work.claim(4)
    for piece in pieces:
        print("begin", piece.key, time.monotonic(), flush=True)
        time.sleep(chance.random() * 0.002)
        print("end", piece.key, time.monotonic(), flush=True)
    work.give_back([(piece, None) for piece in pieces])
"""


def test_k1_k3_wake_ups_at_random_reach_one_worker_at_a_time_and_none_is_lost(address: str) -> None:
    """Four processes, few keys, one of them killed in the middle: no overlap, and the last wake-up is acted upon."""
    boss = PgWork(address, "boss")
    command = [sys.executable, "-c", WORKER, address]
    workers = [subprocess.Popen([*command, f"w{n}"], stdout=subprocess.PIPE, text=True) for n in range(4)]
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    chance, last = random.Random(7), dict[str, float]()
    for number in range(400):
        key = f"k{chance.randrange(6)}"
        last[key] = time.monotonic()
        boss.wake([(key, "acme", 0)])
        if number == 200:
            workers[0].kill()
    with PgServer(address, lock_timeout=1).connect() as connection:
        while connection.execute("SELECT 1 FROM work WHERE owner IS NOT NULL OR due < 'infinity'").fetchall():
            pass
    boss.close()
    spans: dict[str, list[tuple[float, float]]] = {}
    for worker in workers:
        worker.kill()
        lines = [line.split() for line in worker.communicate()[0].splitlines()]
        for begin, end in zip(lines[::2], lines[1::2], strict=False):
            spans.setdefault(begin[1], []).append((float(begin[2]), float(end[2])))
    for key, found in spans.items():
        found.sort()
        assert all(one[1] <= next[0] for one, next in itertools.pairwise(found)), f"{key} overlaps"
        assert found[-1][0] >= last[key], f"the last wake-up of {key} was lost"


async def test_k5_a_worker_that_lost_its_claim_is_fenced_by_its_next_append(address: str) -> None:
    async with Ledger.open(address) as one, Ledger.open(address) as other:
        await one.append("run/r1", [Draft("run.started")])
        await other.append("run/r1", [Draft("lease.acquired")], expect=0)  # took over while `one` stood still
        with pytest.raises(Problem) as caught:
            await one.append("run/r1", [Draft("node.completed")], expect=0)
        assert caught.value.key == "ledger_conflict"


async def test_a_connection_that_was_cut_is_made_again(two: tuple[PgWork, PgWork], address: str) -> None:
    a, _ = two
    with PgServer(address, lock_timeout=1).connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'forestay'"
        )
    assert await asyncio.to_thread(a.beat) is True
