"""What a scenario leaves out: one place, with a reason, and nothing beside it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forestay.extensions.conform.masks import Mask, masked
from forestay.extensions.conform.scenarios import Scenario, read_scenarios
from forestay.kernel import Problem, canonical

ROOT = Path(__file__).resolve().parents[3]
WHY = "It is random, by nature."


def test_a_place_is_left_out_and_its_neighbours_are_not():
    value = {"a": [{"t": 1, "x": 2}, {"t": 3, "x": 4}], "ab": {"t": 5}}
    assert masked(value, [Mask("a[*].t", WHY)]) == {"a": [{"t": None, "x": 2}, {"t": None, "x": 4}], "ab": {"t": 5}}
    assert masked(value, [Mask("a", WHY)]) == {"a": None, "ab": {"t": 5}}
    assert masked(value, [Mask("a[1]", WHY)])["a"] == [{"t": 1, "x": 2}, None]


def test_a_pattern_leaves_out_only_what_matches():
    value = {"ui": ["at 12:30:01 done", {"n": 17}], "files": "at 12:30:01"}
    assert masked(value, [Mask("ui", WHY, pattern=r"\d\d:\d\d:\d\d")]) == {
        "ui": ["at … done", {"n": 17}],
        "files": "at 12:30:01",
    }


def test_a_drop_takes_entries_of_one_list():
    value = {"ui": [{"op": "a"}, {"op": "b", "ui": [{"op": "a"}]}]}
    assert masked(value, [Mask("ui", WHY, drop='"op":"a"}$')]) == {"ui": [{"op": "b", "ui": [{"op": "a"}]}]}


def test_a_scenario_without_a_reason_is_refused():
    draft = {"scenario": "s", "group": "g", "extension": "e", "steps": [], "ignore": [{"at": "ui", "why": ""}]}
    with pytest.raises(Problem):
        canonical.decode(canonical.encode(draft), Scenario)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**draft, "ignore": ["ui"]}, Scenario)


def test_no_scenario_leaves_out_a_whole_part():
    for scenario in read_scenarios(ROOT / "corpus" / "scenarios"):
        for mask in scenario.ignore:
            is_whole = not mask.pattern and not mask.drop
            assert not (is_whole and mask.at in ("steps", "ui", "session", "files", "errors")), scenario.scenario
