"""Tool arguments against what pi 0.73.1 makes of the same ones (`pi_arguments.mjs` recorded it), and against abuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.tools.tool import checker, fitted

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "pi_arguments.json").read_text("utf-8"))


def _told(case: dict[str, Any]) -> str:
    return f"{'typebox' if case['typebox'] else 'plain'} {json.dumps(case['parameters']['properties']['x'])}"


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, 4.0 is 4."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _made(case: dict[str, Any], given: Any) -> Any:
    return fitted("t", case["parameters"], {"x": given}, typebox=case["typebox"])["x"]


@pytest.mark.parametrize("case", RECORDED, ids=_told)
def test_what_pi_takes_is_taken_and_becomes_the_same(case: dict[str, Any]) -> None:
    made = [(given, _made(case, given), wanted) for given, wanted in case["takes"]]
    assert [item for item in made if not _same(item[1], item[2])] == []


@pytest.mark.parametrize("case", RECORDED, ids=_told)
def test_what_pi_refuses_is_refused_with_its_place(case: dict[str, Any]) -> None:
    for given in case["refuses"]:
        with pytest.raises(Problem) as caught:
            _made(case, given)
        assert caught.value.key == "schema_mismatch", given
        assert caught.value.details["errors"][0]["at"].startswith("$.x"), given


def test_the_record_tells_the_two_kinds_of_schema_apart() -> None:
    kinds = {case["typebox"] for case in RECORDED if case["parameters"]["properties"]["x"] == {"type": "number"}}
    assert kinds == {True, False}
    assert all(case["takes"] for case in RECORDED) and any(case["refuses"] for case in RECORDED)


@pytest.mark.parametrize("address", ["file://{path}", "http://127.0.0.1:9/x", "https://example.invalid/schema"])
def test_a_schema_cannot_make_the_host_read_anything(address: str, tmp_path: Path) -> None:
    secret = tmp_path / "schema.json"
    secret.write_text('{"type": "string"}')
    schema = {"type": "object", "properties": {"v": {"$ref": address.format(path=secret)}}}
    with pytest.raises(Problem) as caught:
        fitted("t", schema, {"v": "x"})
    assert caught.value.key == "registration_invalid"


def test_a_schema_cannot_make_the_host_count_forever() -> None:
    schema = {"type": "object", "properties": {"v": {"type": "string", "pattern": "^(?=(a+)+$)(a|aa)+$"}}}
    with pytest.raises(Problem):
        fitted("t", schema, {"v": "a" * 60 + "b"})


def test_the_callers_arguments_are_not_changed() -> None:
    given = {"v": {"w": "4"}}
    schema = {"type": "object", "properties": {"v": {"type": "object", "properties": {"w": {"type": "number"}}}}}
    assert fitted("t", schema, given) == {"v": {"w": 4}}
    assert given == {"v": {"w": "4"}}


def test_a_property_may_be_named_like_a_word_of_the_schema() -> None:
    pair = {"type": "array", "items": [{"type": "number"}, {"type": "string"}], "additionalItems": False}
    schema = {"type": "object", "properties": {"items": pair, "default": pair}, "default": {"items": [[1]]}}
    assert fitted("t", schema, {"items": ["1", 2], "default": [3, "a"]}) == {"items": [1, "2"], "default": [3, "a"]}
    for name in ("items", "default"):
        with pytest.raises(Problem, match=name):
            fitted("t", schema, {name: [1, "a", 3]})


def test_a_number_beyond_every_double_is_refused_and_does_not_break_the_host() -> None:
    with pytest.raises(Problem, match="Validation failed"):
        fitted("t", {"type": "object", "properties": {"v": {"type": "string"}}}, {"v": 10**400})


def test_a_schema_that_is_none_is_said_to_be_none() -> None:
    with pytest.raises(Problem) as caught:
        checker({"type": "objekt"})
    assert caught.value.key == "registration_invalid"
