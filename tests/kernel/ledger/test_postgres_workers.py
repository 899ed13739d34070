"""K1 to K5: who carries what, on a ledger that processes share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from forestay.kernel.ledger import Append, Draft, Ledger, Queue, Record, Transaction, postgres_workers
from forestay.kernel.ledger.postgres_server import PgServer
from forestay.kernel.ledger.postgres_workers import PgWorkers
from forestay.kernel.problems import Problem
from tests.postgres import change_worker, new_ledger

QUEUE = Queue("jobs", "id", "family", "worker", "tenant", "q.due <= ?", "q.due < 9")
Start = Callable[[str], PgWorkers]


class Jobs:
    """A queue for the tests: jobs of families, due at a time; 9 is never."""

    name, version, prefix = "jobs", 1, "job/"
    schema = (
        "CREATE TABLE jobs (id TEXT PRIMARY KEY, family TEXT NOT NULL, worker TEXT, tenant TEXT NOT NULL, "
        "due BIGINT NOT NULL)"
    )

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            said = record.payload
            tx.execute(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, due = excluded.due",
                (record.stream[4:], said["family"], said["worker"], said["tenant"], said["due"]),
            )


@pytest.fixture
def address() -> str:
    return new_ledger()


@pytest.fixture
def ledger(address: str) -> Iterator[Ledger]:
    found = Ledger.open(address, projections=[Jobs()])
    yield found
    found.close()


@pytest.fixture
def start(address: str, ledger: Ledger) -> Iterator[Start]:
    """A process by that name, which has lived for long; nothing beats by itself."""
    made: list[PgWorkers] = []

    def started(name: str) -> PgWorkers:
        worker = PgWorkers(PgServer(address, lock_timeout=5), name, QUEUE, lease=60)
        made.append(worker)
        worker.start(lambda beat: None)
        change_worker(address, "since = since - interval '1 hour'", name)
        return worker

    yield started
    for worker in made:
        worker.close()


def end_lease(address: str, worker: str) -> None:
    change_worker(address, "until = clock_timestamp() - interval '1 ms'", worker)


def put(ledger: Ledger, id: str, worker: str | None, *, family: str = "", tenant: str = "acme", due: int = 0) -> None:
    said = {"family": family or id, "worker": worker, "tenant": tenant, "due": due}
    ledger.submit(Append(f"job/{id}", [Draft("job.put", said)])).result()


def test_k1_what_a_living_process_wrote_is_its_own(ledger: Ledger, start: Start) -> None:
    a, b = start("a"), start("b")
    put(ledger, "j", "a")
    b.claim(1, 10)
    assert b.due(1, 10) == [] and a.due(1, 10) == ["j"]
    assert a.owner("j") == b.owner("j") == "a"
    assert b.take("j") == ("a", None)


def test_k1_what_nobody_has_goes_to_the_first_that_claims_it(ledger: Ledger, start: Start) -> None:
    a, b = start("a"), start("b")
    put(ledger, "j", None)
    put(ledger, "k", "")
    assert a.owner("j") == ""
    a.claim(1, 10)
    b.claim(1, 10)
    assert sorted(a.due(1, 10)) == ["j", "k"] and b.due(1, 10) == []
    assert b.take("k") == ("a", None)


def test_k1_four_that_claim_at_once_get_each_key_once(ledger: Ledger, start: Start) -> None:
    workers = [start(name) for name in "abcd"]
    ids = [f"j{number:02}" for number in range(40)]
    for id in ids:
        put(ledger, id, None)
    together = threading.Barrier(len(workers))

    def claim(worker: PgWorkers) -> list[str]:
        for _ in range(5):
            together.wait(60)
            worker.claim(1, 4)
        return worker.due(1, 100)

    with ThreadPoolExecutor(len(workers)) as pool:
        found = list(pool.map(claim, workers))
    claimed = [id for some in found for id in some]
    assert claimed and len(claimed) == len(set(claimed)), "each once"
    for worker, some in zip(workers, found, strict=True):
        assert {worker.owner(id) for id in some} <= {worker.name}
    workers[0].claim(1, 100)  # what is left: of those who want the same at once, one gets it
    assert sorted(id for worker in workers for id in worker.due(1, 100)) == ids


def test_k1_a_family_has_one_owner(ledger: Ledger, start: Start) -> None:
    a, b = start("a"), start("b")
    for id in ("parent", "child"):
        put(ledger, id, None, family="parent")
    assert a.take("child") == ("a", "")
    assert b.take("parent") == ("a", None)


def test_k3_what_a_dead_process_had_goes_to_another(ledger: Ledger, start: Start, address: str) -> None:
    a, b = start("a"), start("b")
    put(ledger, "written", "a")
    put(ledger, "claimed", None)
    a.claim(1, 10)
    end_lease(address, "a")
    b.claim(1, 10)
    assert sorted(b.due(1, 10)) == ["claimed", "written"]
    assert a.take("written") == ("b", None), "without a lease nothing is taken"
    assert a.beat() == "lapsed" and a.beat() == "alive"
    assert a.kept(["written", "claimed"]) == set()
    assert b.kept(["written", "claimed"]) == {"written", "claimed"}


def test_k3_a_process_that_has_just_begun_to_live_takes_nothing_from_the_dead(
    ledger: Ledger, start: Start, address: str
) -> None:
    """The database was away: everybody's lease has run out, and who comes first must not take what others carry."""
    a, b = start("a"), start("b")
    put(ledger, "j", "a")
    put(ledger, "k", None)
    end_lease(address, "a")
    end_lease(address, "b")
    assert b.beat() == "lapsed"
    b.claim(1, 10)
    assert b.due(1, 10) == ["k"]
    assert b.take("j") == ("", None)
    assert a.beat() == "lapsed"
    assert a.due(1, 10) == ["j"]


def test_k3_who_leaves_hands_over_at_once(ledger: Ledger, start: Start) -> None:
    a, b = start("a"), start("b")
    put(ledger, "written", "a")
    put(ledger, "claimed", None)
    a.claim(1, 10)
    a.leave()
    b.claim(1, 10)
    assert sorted(b.due(1, 10)) == ["claimed", "written"]


def test_a_restart_takes_its_own_back_at_once(ledger: Ledger, start: Start) -> None:
    a = start("a")
    put(ledger, "j", "a")
    again = start("a")
    assert a.beat() == "replaced"
    assert again.take("j") == ("a", None)


def test_k4_a_tenant_with_a_backlog_does_not_keep_the_others_waiting(ledger: Ledger, start: Start) -> None:
    a, b = start("a"), start("b")
    for number in range(20):
        put(ledger, f"big-{number}", None, tenant="big")
    put(ledger, "small", None, tenant="small")
    a.claim(1, 2)
    assert len(a.due(1, 100)) == 2 and "small" in a.due(1, 100)
    b.claim(1, 5)
    assert len(b.due(1, 100)) == 5


def test_claims_on_what_has_ended_are_forgotten(ledger: Ledger, start: Start) -> None:
    a = start("a")
    put(ledger, "j", None)
    put(ledger, "k", None)
    a.claim(1, 10)
    put(ledger, "j", None, due=9)
    a.tidy()
    assert a.owner("j") == "" and a.owner("k") == "a"


def test_the_list_says_who_lives_and_what_they_carry(ledger: Ledger, start: Start, address: str) -> None:
    a, _ = start("a"), start("b")
    put(ledger, "j", "a")
    put(ledger, "k", "b")
    end_lease(address, "b")
    assert [(item.name, item.alive, item.carries) for item in a.listed()] == [("a", True, 1), ("b", False, 0)]


async def test_k5_a_process_that_lost_its_claim_is_fenced_by_its_next_append(address: str) -> None:
    async with Ledger.open(address) as one, Ledger.open(address) as other:
        await one.append("run/r1", [Draft("run.started")])
        await other.append("run/r1", [Draft("lease.acquired")], expect=0)  # took over while `one` stood still
        with pytest.raises(Problem) as caught:
            await one.append("run/r1", [Draft("node.completed")], expect=0)
        assert caught.value.key == "ledger_conflict"


async def test_a_connection_that_was_cut_is_made_again(start: Start, address: str) -> None:
    a = start("a")
    with PgServer(address, lock_timeout=1).connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'forestay'"
        )
    assert await asyncio.to_thread(a.beat) == "alive"


def test_who_has_left_does_not_connect_again(start: Start) -> None:
    worker = start("a")
    worker.leave()
    with pytest.raises(Problem, match="closed"):
        worker.claim(1, 1)


def test_k1_a_process_that_stalled_is_not_certain_until_its_next_beat(
    start: Start, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(postgres_workers, "monotonic", lambda: now)
    worker = start("a")
    now += 59
    assert worker.is_certain
    now += 1
    assert not worker.is_certain, "a lease is over when it may be over"
    end_lease(address, "a")
    assert worker.beat() == "lapsed" and not worker.is_certain, "others may have taken what it carried"
    assert worker.beat() == "alive" and worker.is_certain
