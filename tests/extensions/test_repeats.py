"""Repeats are counted, truthfully (F1 to F3), and quotas stop an extension (Q1 to Q3)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.dispatcher_world import World

from forestay.extensions.authority import BURST_SECONDS, Quotas
from forestay.extensions.evidence import Correlation, Ended, Event, Evidence
from forestay.extensions.history import seen
from forestay.extensions.repeats import FULL_CALLS, MAX_KNOWN, Repeats
from forestay.kernel import ExtensionQuotas, Ledger, ManualClock, Problem, Record


def flood(world: World, times: int, **params: Any) -> None:
    for _ in range(times):
        world.sync("fs", op="access", path="a.txt", **params)


def counted(world: World) -> list[dict[str, Any]]:
    return [record.payload for record in world.records() if record.type == "host_call.repeated"]


def full(world: World) -> int:
    return sum(record.type == "host_call.end" for record in world.records())


@pytest.mark.parametrize("grants", [[], ["read"]])
def test_f1_an_ordinary_extension_has_the_records_it_always_had(tmp_path: Path, grants: list[str]) -> None:
    world = World(tmp_path, grants=grants)
    flood(world, 300)
    types = [record.type for record in world.records()]
    assert types == ["host_call.start", "policy.decision", "host_call.end"] * 300
    world.close()


@pytest.mark.parametrize(("grants", "effect"), [([], "deny"), (["read"], "allow")])
def test_f2_what_repeats_beyond_that_is_counted(
    tmp_path: Path, clock: ManualClock, grants: list[str], effect: str
) -> None:
    world = World(tmp_path, grants=grants, clock=clock)
    (world.project / "a.txt").write_text("x")
    flood(world, FULL_CALLS + 1 + 5_000)
    (told,) = counted(world)
    assert full(world) == FULL_CALLS + 1, "the first that is told in brief is on record in full before"
    assert told["count"] == 5_000
    assert (told["first_call"], told["last_call"]) == ("host-1002", "host-6001")
    assert told["first"] <= told["last"]
    assert (told["capability"], told["method"], told["effect"]) == ("read", "fs", effect)
    start = next(record for record in world.records() if record.type == "host_call.start")
    assert told["params_hash"] == start.payload["params_hash"]
    assert told["resource"] == "a.txt"
    asyncio.run(world.ledger.verify())
    world.close()


def test_v3_the_page_of_an_extension_has_every_call(tmp_path: Path) -> None:
    world = World(tmp_path)
    flood(world, FULL_CALLS + 2_001)
    used = seen(world.records())
    assert used.used["read"].refused == FULL_CALLS + 2_001
    assert used.calls[0].count + len(used.calls) - 1 >= FULL_CALLS + 1
    world.close()


def test_f2_another_parameter_or_another_end_is_another_call(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["read"])
    (world.project / "a.txt").write_text("x")
    flood(world, FULL_CALLS)
    for _ in range(3):
        world.sync("fs", op="access", path="a.txt")
        world.sync("fs", op="access", path="b.txt")
    (world.project / "b.txt").write_text("now it is there")
    world.sync("fs", op="access", path="b.txt")
    told = counted(world)
    assert sum(item["count"] for item in told) + full(world) == FULL_CALLS + 7
    assert {(item["is_error"], item["count"]) for item in told} == {(False, 2), (True, 2)}
    world.close()


def test_f2_what_changes_something_is_always_told_in_full(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["read", "write"])
    flood(world, FULL_CALLS)
    before = full(world)
    for _ in range(20):
        world.ok("fs", op="write", path="w.txt", text="same")
    assert full(world) == before + 20
    assert counted(world) == []
    world.close()


def test_f3_counts_come_before_what_follows_them(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["read", "write"])
    flood(world, FULL_CALLS + 11)
    world.ok("fs", op="write", path="w.txt", text="x")
    flood(world, 5)
    types = [record.type for record in world.records()]
    assert types[-5:] == [
        "host_call.repeated", "host_call.start", "policy.decision", "host_call.end", "host_call.repeated",
    ]  # fmt: skip
    assert [item["count"] for item in counted(world)] == [10, 5]
    stamps = [record.ts for record in world.records()]
    assert stamps == sorted(stamps)
    world.close()


def test_f3_a_window_is_told_when_it_ends(clock: ManualClock) -> None:
    repeats = Repeats(0)
    assert repeats.take(("a",), dict, 0, "1", 1.0) is False
    assert repeats.take(("a",), dict, 5, "2", 1.5) and repeats.take(("a",), dict, 9, "3", 1.0)
    assert repeats.take(("b",), dict, 7, "4", 1.0) is False
    assert repeats.take(("b",), dict, 8, "5", 1.0)
    assert not repeats.is_due(1_004) and repeats.is_due(1_005)
    first, second = repeats.close()
    assert first.told() == {
        "count": 2, "first": 5, "last": 9, "first_call": "2", "last_call": "3", "duration_ms": 2.5,
    }  # fmt: skip
    assert second.count == 1 and not repeats.is_open and repeats.close() == []


def test_f1_the_calls_that_are_told_in_full_come_back_with_time() -> None:
    repeats = Repeats(0)
    assert [repeats.in_full(999), repeats.in_full(1_000), repeats.in_full(1_001)] == [False, True, False]
    assert sum(repeats.in_full(10**9) for _ in range(FULL_CALLS + 50)) == FULL_CALLS


def test_f2_what_is_remembered_is_bounded() -> None:
    repeats = Repeats(0)
    for number in range(MAX_KNOWN + 1):
        assert not repeats.take((number,), dict, 0, "", 0.0)
    assert len(repeats._known) == 1


def test_the_evidence_of_a_loop_is_small(tmp_path: Path) -> None:
    """Before there were counts: about 1.5 KB on disk for each call, 32 GB an hour."""
    world = World(tmp_path)
    flood(world, 10_000)
    assert len(world.records()) < 3 * FULL_CALLS + 200
    world.close()


# Quotas


def quotas(clock: ManualClock, **limits: int) -> tuple[Quotas, list[tuple[str, Problem]]]:
    stopped: list[tuple[str, Problem]] = []
    return Quotas(ExtensionQuotas(**limits), lambda *what: stopped.append(what), clock=clock), stopped


def test_q2_calls_are_a_bucket(clock: ManualClock) -> None:
    meter, stopped = quotas(clock, calls_per_second=10)
    for _ in range(10 * BURST_SECONDS):
        meter.call("a", 100.0)
    for _ in range(5):
        meter.call("a", 100.5)
    with pytest.raises(Problem) as caught:
        meter.call("a", 100.5)
    assert caught.value.key == "quota_exceeded"
    assert caught.value.details["setting"] == "extensions.quotas.calls_per_second"
    assert "more than 10 host calls a second" in caught.value.message
    assert [name for name, _ in stopped] == ["a"]
    meter.call("b", 100.5)  # Q1
    with pytest.raises(Problem):  # Q3
        meter.call("a", 10_000.0)
    assert len(stopped) == 1


def test_q2_bytes_are_of_a_day_and_a_session_is_kept(clock: ManualClock) -> None:
    meter, stopped = quotas(clock, log_mb=1, session_mb=1)
    half = 600_000
    meter.spend("a", "log", half)
    meter.spend("s", "session", half)
    clock.advance(86_400)
    meter.spend("a", "log", half)
    assert stopped == []
    meter.spend("a", "log", half)
    meter.spend("s", "session", half)
    assert [(name, problem.details["setting"], problem.details["limit"]) for name, problem in stopped] == [
        ("a", "extensions.quotas.log_mb", 1),
        ("s", "extensions.quotas.session_mb", 1),
    ]


# Crashes and threads

CHILD = """
import os, signal, sys
from pathlib import Path
from tests.extensions.dispatcher_world import World

world = World(Path(sys.argv[1]))
for number in range(1, 4001):
    world.sync("fs", op="access", path="a.txt")
    if number == 3000:
        world.evidence.flush()
        print("3000 calls are on disk", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    killed = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], env=environment, stdout=subprocess.PIPE, check=False, timeout=120
    )
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, b"3000 calls are on disk\n")
    world = World(tmp_path)
    used = seen(world.records())
    assert 3_000 <= used.used["read"].refused <= 4_000
    asyncio.run(world.ledger.verify())
    world.close()


def test_f3_a_count_reaches_the_disk_although_nothing_follows_it(tmp_path: Path, clock: ManualClock) -> None:
    told = threading.Event()
    with contextlib.closing(Ledger.open(tmp_path / "l.db")) as ledger:

        def sink(record: Record) -> None:
            if record.type == "host_call.repeated":
                told.set()

        evidence = Evidence(ledger, sink=sink, clock=clock)
        one, other = Correlation("one", "scn"), Correlation("other", "scn")
        events = [Event("host_call.start", {}, {"host_call_id": "1"}), Event("host_call.end", {"duration_ms": 1.0})]
        for _ in range(3):
            evidence.repeat(one, Ended(("same",), clock.now_ms(), "1", 1.0, lambda: events))
        clock.advance(2)
        evidence.write(other, Event("extension.ready", {}))  # wakes the thread, and is of another stream
        assert told.wait(30)
        evidence.close()


def test_many_threads_are_counted_one_by_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    flood(world, FULL_CALLS + 1)
    requests = [[world.request("fs", {"op": "access", "path": "a.txt"}) for _ in range(300)] for _ in range(8)]

    def call(part: list[Any]) -> None:
        for request in part:
            world.dispatcher.call_sync(request, "ext.test")

    threads = [threading.Thread(target=call, args=(part,)) for part in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(item["count"] for item in counted(world)) + full(world) == FULL_CALLS + 1 + 2_400
    world.close()
