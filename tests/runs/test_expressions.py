"""The expression language keeps its promises (E1-E5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.kernel import Problem
from forestay.runs.conditions import compile_condition, compile_path
from forestay.runs.definition import Condition
from forestay.runs.expressions import FUNCTIONS, MAX_DEPTH, MAX_STEPS, MAX_TEXT, compile_expression

SCOPE: dict[str, Any] = {
    "n": 3, "f": 2.5, "t": True, "s": "Abc", "none": None, "list": [1, "x", {"k": 1}],
    "obj": {"a": {"b": [10, 20]}, "with-hyphen": 5},
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("7 / 2", 3.5), ("6 / 2", 3), ("7 % 4", 3), ("-n", -3), ("1 - -1", 2),
        ("n == 3", True), ("n == 3.0", True), ("t == 1", False), ("none == null", True), ("'3' == 3", False),
        ("n != 3", False), ("n < 4 && n > 2", True), ("n <= 3 || missing", True), ("!t", False), ("not t", False),
        ("'a' < 'b'", True), ("'a' < 1", False), ("t < 2", False), ("n in [1, 2, 3]", True), ("'b' in s", True),
        ("'a' in obj", True), ("obj.a.b[1]", 20), ("obj.a.b.0", 10), ("obj['with-hyphen']", 5), ("obj.zz.yy.xx", None),
        ("list[2].k", 1), ("list[9]", None), ("list[-1].k", 1), ("size(list)", 3), ("size(s)", 3), ("size(none)", 0),
        ("lower(s) + upper(s)", "abcABC"), ("contains(list, 'x')", True), ("matches(s, '^[A-Z]b')", True),
        ("matches(n, 'x')", False), ("t ? 'yes' : 'no'", "yes"), ("{a: n, 'b c': [t]}", {"a": 3, "b c": [True]}),
        ('"\\u00e9\\n"', "é\n"), ("'it\\'s'", "it's"), ("n and t", True), ("[] + list == list", True), ("1e3", 1000.0),
    ],
)  # fmt: skip
def test_values(text: str, value: Any) -> None:
    assert compile_expression(text).evaluate(SCOPE) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 +", "(", "a b", "a..b", "a.", "'open", "f(1)", "size()", "size(1, 2)", "matches(s, '(')", "[1,", "{a}",
     "1 = 2", "a;b", "@x", "__import__('os')", "lambda: 1", "x => x", "a ? b", "\0"],
)  # fmt: skip
def test_what_cannot_be_read_is_a_located_problem(text: str) -> None:
    with pytest.raises(Problem) as refused:
        compile_expression(text)
    assert refused.value.key == "expression_invalid"


@pytest.mark.parametrize("text", ["n + s", "-s", "1 / 0", "1 % 0", "none * 2", "t + 1", "list - 1"])
def test_what_cannot_be_computed_is_a_problem(text: str) -> None:
    with pytest.raises(Problem):
        compile_expression(text).evaluate(SCOPE)


@pytest.mark.parametrize(
    "text",
    ["1" + "+1" * MAX_TEXT, "(" * 100 + "1" + ")" * 100, "!" * 100 + "t", "-" * 100 + "1", "[" * 60 + "]" * 60,
     "a" + ".b" * 100, "1" + " + 1" * 500, "a" + "[0]" * 100],
)  # fmt: skip
def test_e2_text_and_depth_are_bounded(text: str) -> None:
    with pytest.raises(Problem):
        compile_expression(text)


def test_e2_numbers_and_strings_do_not_explode() -> None:
    with pytest.raises(Problem):
        compile_expression("n * n * n * n").evaluate({"n": 10**60})
    with pytest.raises(Problem):
        compile_expression("s + s").evaluate({"s": "x" * 600_000})


def test_e5_a_pattern_that_kills_backtracking_engines_is_quick() -> None:
    # A backtracking engine would not come back from this at all.
    assert not compile_expression("matches(s, '^(a+)+$')").evaluate({"s": "a" * 50_000 + "b"})


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="ab01.()[]{}'\"+-*/%<>=!&|?:, insize\\", max_size=60))
def test_e1_any_text_gives_a_value_or_a_problem(text: str) -> None:
    try:
        compile_expression(text).evaluate({"a": 1, "b": [1]})
    except Problem as problem:
        assert problem.key == "expression_invalid"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(VALUES)
def test_e4_equality_is_json_equality(value: Any) -> None:
    assert compile_expression("a == b").evaluate({"a": value, "b": value}) is True


@pytest.mark.parametrize(
    ("condition", "output", "holds"),
    [
        ({"type": "equals", "left": "output.x", "right": [1]}, {"x": [1]}, True),
        ({"type": "equals", "left": "x", "right": True}, {"x": 1}, False),
        ({"type": "notEquals", "left": "output.missing", "right": 1}, {}, True),
        ({"type": "contains", "left": "output.s", "right": "b"}, {"s": "abc"}, True),
        ({"type": "contains", "left": "output.l", "right": 2}, {"l": [1, 2]}, True),
        ({"type": "contains", "left": "output.n", "right": 2}, {"n": 2}, False),
        ({"type": "regex", "left": "output.s", "right": "b$"}, {"s": "ab"}, True),
        ({"type": "regex", "left": "output.n", "right": "1"}, {"n": 1}, False),
        ({"type": "expression", "expression": "output.n"}, {"n": 0}, False),
        ({"left": "x", "right": 1}, {"x": 1}, True),
        ({"expression": "x == 1"}, {"x": 1}, True),
    ],
)
def test_conditions(condition: dict[str, Any], output: dict[str, Any], holds: bool) -> None:
    test = compile_condition(Condition(**condition))
    assert test(lambda name: output if name == "output" else output.get(name)) is holds


def test_paths_may_hold_hyphens_and_indexes() -> None:
    scope = {"nodes": {"my-node": {"output": {"l": [5, 6]}}}}
    assert compile_path("nodes.my-node.output.l[1]")(scope.get) == 6
    assert compile_path("nodes.my-node.output.l.0")(scope.get) == 5


def test_the_page_of_expressions_names_every_function_and_limit() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs/reference/expressions.md").read_text()
    for name in FUNCTIONS:
        assert f"`{name}(" in page
    for limit in (MAX_TEXT, MAX_DEPTH, MAX_STEPS):
        assert f"{limit:,}" in page
