"""The checker finds each mutant of engine, ledger and dispatcher, by a seed that finds nothing in the code as it is."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from tests.kernel.ledger import mutants as ledger
from tests.runs import mutants as runs
from tests.simulation.world import simulate

Mutant = Callable[[pytest.MonkeyPatch], None]
FOUND_BY: dict[Mutant, int] = {
    runs.identity_with_attempt: 6,
    runs.state_ahead_of_the_log: 2,
    runs.sleepers_forgotten: 0,
    runs.ends_of_children_unheard: 225,
    runs.running_nodes_forgotten: 0,
    ledger.expectation_unchecked: 0,
    ledger.commits_unsynced: 0,
    ledger.tails_outlive_a_failure: 95,
    ledger.committed_with_the_next: 0,
    ledger.tables_see_the_last_record: 0,
    ledger.group_answered_as_one: 0,
    runs.new_id_for_a_repeated_request: 41,
    runs.keys_of_all_tenants: 0,
    runs.delivered_unasked: 1,
    runs.tenant_not_asked: 3,
    runs.stream_begins_one_late: 1,
}


@pytest.fixture
def untidy(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A world that got stuck leaves coroutines that cannot end; they go with their test."""
    caplog.set_level("CRITICAL")
    yield
    gc.collect()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", FOUND_BY, ids=lambda mutant: mutant.__name__)
def test_the_checker_finds_the_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch, untidy: None) -> None:
    mutant(monkeypatch)
    assert simulate(FOUND_BY[mutant], small=True).faults
