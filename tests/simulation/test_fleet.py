"""Several hosts on one ledger keep the promises of the checker, and what makes them several does happen."""

from __future__ import annotations

import gc
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.kernel.ledger import mutants
from tests.kernel.ledger.simulated_disk import Disk
from tests.kernel.ledger.simulated_fleet import LEASE_SECONDS, Fleet, Life, Row
from tests.simulation.fleet import FleetWorld, simulate_fleet
from tests.simulation.machine import WorldClock
from tests.simulation.world import first_folder, live

QUICK = range(6)
# What seeds have found, before it was mended.
FOUND = {
    720141: "a parent that could not reach one child did not ask for the other, which had ended, and waited for ever",
    720392: "a host that had stalled told of a run as it was before another host took it over and cancelled it",
}
MANY, MANY_BLOCKS = int(os.environ.get("FORESTAY_SEEDS", "10000")), 100


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level("CRITICAL")
    yield
    gc.collect()


def test_small_fleets_keep_their_promises_and_are_fleets() -> None:
    """Over a few seeds hosts stall and die, runs are taken over, and commands reach hosts that do not carry the run."""
    seen: Counter[str] = Counter()
    for seed in QUICK:
        with first_folder() as folder:
            world = FleetWorld(seed, folder, small=True)
            assert live(world).faults == [], seed
            with closing(sqlite3.connect(world.disk.folder / "ledger.db")) as db:
                seen.update(dict(db.execute("SELECT type, count(*) FROM records GROUP BY type").fetchall()))
            seen.update(word for line in world.told for word in ("dies", "stalls") if line.endswith(word))
    assert all(seen[what] for what in ("worker.took_over", "command.asked", "command.answered", "dies", "stalls")), seen


def test_a_seed_takes_the_same_steps() -> None:
    first, second = simulate_fleet(1, small=True), simulate_fleet(1, small=True)
    assert (first.digest, first.steps) == (second.digest, second.steps) and first.digest


@pytest.mark.filterwarnings("ignore")
def test_the_checker_finds_a_ledger_that_fences_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that believe to carry one run both write to it (K5)."""
    mutants.expectation_unchecked(monkeypatch)
    assert simulate_fleet(0, small=True).faults


@pytest.mark.sweep
@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_stays_mended(seed: int) -> None:
    assert simulate_fleet(seed).faults == []


@pytest.mark.sweep
@pytest.mark.parametrize("block", range(MANY_BLOCKS))
def test_fleets_keep_their_promises(block: int) -> None:
    """`FORESTAY_SEEDS` says how many."""
    size = -(-MANY // MANY_BLOCKS)
    found = {
        seed: simulate_fleet(seed).faults for seed in range(2_000_000 + block * size, 2_000_000 + (block + 1) * size)
    }
    assert {seed: faults for seed, faults in found.items() if faults} == {}


def fleet_at(seconds: float, **lives: Life) -> Fleet:
    clock = WorldClock()
    clock.elapsed = seconds
    fleet = Fleet(clock, Disk(Path(), Random(0)), Random(0))
    fleet.lives.update(lives)
    return fleet


OLD = Life(1, 0.0, 100.0, {})
GONE = Life(1, 0.0, 9.0, {})


def test_k1_a_key_has_one_living_owner() -> None:
    fleet = fleet_at(10.0, a=OLD, b=OLD, c=GONE)
    assert fleet.owner(Row("r", "r", "t", "a")) == "a"
    assert fleet.owner(Row("r", "r", "t", "c")) == ""
    assert fleet.take("b", "r") and fleet.owner(Row("r", "r", "t", "a")) == "b"
    assert not fleet.take("a", "r")


def test_k3_only_who_lived_for_a_lease_takes_from_the_dead() -> None:
    young = Life(1, 10.0 - LEASE_SECONDS / 2, 100.0, {})
    fleet = fleet_at(10.0, old=OLD, young=young, gone=GONE)
    row = Row("r", "r", "t", "gone")
    assert fleet.may_take("old", row) and not fleet.may_take("young", row)
    assert fleet.may_take("young", Row("n", "n", "t", "")) and not fleet.may_take("old", Row("o", "o", "t", "young"))
    fleet.claims["r"] = "young"
    assert not fleet.may_take("old", row)
