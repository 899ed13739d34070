"""The life of versions against a table written by hand, and draws against what chance allows (D1 to D5)."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.agents import precedence
from forestay.governance import Deployment, Fleet, Transition, decide, evolve, resolve
from forestay.governance.deployment import State, Verb
from forestay.kernel import Problem

# The contract's arrows, written out: (state, verb) → state. None is a version without a record.
ARROWS: dict[tuple[State | None, Verb], State] = {
    (None, "promote"): "draft",
    ("draft", "promote"): "test",
    ("test", "promote"): "staged",
    ("staged", "promote"): "active",
    ("paused", "promote"): "active",
    ("active", "pause"): "paused",
    ("active", "deprecate"): "deprecated",
    ("active", "rollback"): "rolled-back",
    ("active", "adjust-canary"): "active",
}


def step(fleet: Fleet, version: str, verb: Verb, **fields: Any) -> Fleet:
    return evolve(fleet, decide(fleet, Transition(version, verb, **fields)).records)


def live(fleet: Fleet, version: str, **fields: Any) -> Fleet:
    """A version from nothing to active."""
    for _ in range(3):
        fleet = step(fleet, version, "promote")
    return step(fleet, version, "promote", **fields)


@pytest.mark.parametrize("state", [None, *get_args(State)])
@pytest.mark.parametrize("verb", get_args(Verb))
def test_d1_only_the_contracts_arrows_lead_on(state: State | None, verb: Verb) -> None:
    fleet = live(Fleet("a"), "1.0.0", channel="stable")
    if state is not None:
        fleet = evolve(fleet, (Deployment("a", "2.0.0", state, channels=("stable",)),))
    percent = 10 if verb == "adjust-canary" else None
    wanted = Transition("2.0.0", verb, canary_percent=percent)
    expected = ARROWS.get((state, verb))
    if expected is None:
        with pytest.raises(Problem) as caught:
            decide(fleet, wanted)
        assert caught.value.key == ("not_found" if state is None else "state_conflict")
        return
    record = decide(fleet, wanted).records[0]
    assert (record.version, record.state) == ("2.0.0", expected)


_verbs = st.sampled_from(get_args(Verb))
_moves = st.lists(
    st.tuples(
        st.sampled_from(["1.0.0", "1.1.0", "2.0.0"]),
        _verbs,
        st.sampled_from([None, "stable", "canary"]),
        st.sampled_from([None, 0, 10, 100]),
    ),
    max_size=40,
)


@given(_moves)
def test_d1_to_d5_hold_whatever_is_asked_for(moves: list[tuple[str, Verb, str | None, int | None]]) -> None:
    fleet, states = Fleet("a"), dict[str, State | None]()
    for version, verb, channel, percent in moves:
        before = fleet
        try:
            change = decide(fleet, Transition(version, verb, channel=channel, canary_percent=percent))
        except Problem:
            assert fleet == before
            continue
        fleet = evolve(fleet, change.records)
        own = states.get(version)
        stays = own == "active" and verb == "promote"  # it joins a channel
        assert change.records[0].state == ("active" if stays else ARROWS[own, verb])
        states |= {record.version: record.state for record in change.records}
        assert {item.version: item.state for item in fleet.listed()} == states
        for name in ("stable", "canary", "latest"):
            found = resolve(fleet, name, "run_1")
            active = {item.version for item in fleet.listed() if item.state == "active"}
            assert found is None or found in active  # D5
            if name == "latest":
                assert found == max(active, key=precedence, default=None)
            else:
                assert len(fleet.active(name)) <= 2  # D2
                assert (found is None) == (not fleet.active(name))
        if verb == "rollback":
            gone, restored = change.records
            assert (gone.rollback_pointer, restored.state) == (restored.version, "active")  # D3


def test_d2_a_canary_shares_and_a_second_one_takes_its_place() -> None:
    fleet = live(Fleet("a"), "1.0.0", channel="stable")
    fleet = live(fleet, "2.0.0", channel="stable", canary_percent=10)
    fleet = live(fleet, "3.0.0", channel="stable", canary_percent=5)
    assert [item.version for item in fleet.active("stable")] == ["1.0.0", "3.0.0"]
    fleet = step(fleet, "3.0.0", "promote", channel="stable")
    assert [item.version for item in fleet.active("stable")] == ["3.0.0"]


def test_d3_a_rollback_restores_what_served_before() -> None:
    fleet = live(Fleet("a"), "1.0.0", channel="stable")
    fleet = live(fleet, "2.0.0", channel="stable")
    fleet = step(fleet, "2.0.0", "rollback", reason="bad")
    assert resolve(fleet, "stable", "r") == "1.0.0"
    with pytest.raises(Problem):
        step(fleet, "1.0.0", "rollback")


@pytest.mark.parametrize("percent", [1, 10, 50, 90])
def test_d4_draws_are_stable_and_within_four_sigmas_of_their_share(percent: int) -> None:
    fleet = live(Fleet("a"), "1.0.0", channel="stable")
    fleet = live(fleet, "2.0.0", channel="stable", canary_percent=percent)
    runs = [f"run_{number}" for number in range(20_000)]
    drawn = [resolve(fleet, "stable", run) for run in runs]
    assert drawn == [resolve(fleet, "stable", run) for run in runs]
    share = percent / 100
    assert abs(drawn.count("2.0.0") - len(runs) * share) < 4 * math.sqrt(len(runs) * share * (1 - share))
    wider = step(fleet, "2.0.0", "adjust-canary", canary_percent=min(100, percent + 9))
    moved = [(old, resolve(wider, "stable", run)) for old, run in zip(drawn, runs, strict=True)]
    assert not [pair for pair in moved if pair == ("2.0.0", "1.0.0")]  # a wider canary takes nobody back


@pytest.mark.parametrize(
    ("wanted", "key"),
    [
        (Transition("1", "promote", channel="nightly"), "schema_mismatch"),
        (Transition("1", "promote", channel="latest"), "schema_mismatch"),
        (Transition("1", "promote", to_state="active"), "state_conflict"),
        (Transition("1", "promote", canary_percent=101), "out_of_range"),
        (Transition("", "promote"), "out_of_range"),
        (Transition("1", "adjust-canary"), "schema_mismatch"),
    ],
)
def test_a_transition_that_cannot_be_is_refused(wanted: Transition, key: str) -> None:
    with pytest.raises(Problem) as caught:
        decide(Fleet("a"), wanted)
    assert caught.value.key == key


def test_versions_are_in_the_order_of_semver() -> None:
    order = ["x", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.2.0",
             "1.10.0+build"]  # fmt: skip
    assert sorted(set(order), key=precedence) == order
