"""A tool's arguments, fitted again and again: the same as `fitted` gives, whatever the schema."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel import Problem, canonical
from forestay.tools.tool import Fitting, fitted, steady

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([1.5, 4.0, "", "4", "true", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object"])


def _schema(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    optional = {
        "type": KINDS | st.lists(KINDS, min_size=1, max_size=3, unique=True),
        "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        "additionalProperties": st.booleans() | inner,
        "patternProperties": st.dictionaries(st.sampled_from(["a", "b|c"]), inner, min_size=1, max_size=1),
        "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "const": VALUES,
    }
    return st.fixed_dictionaries({}, optional=optional)


SCHEMAS = st.recursive(st.fixed_dictionaries({}, optional={"type": KINDS}), _schema, max_leaves=8)


def _outcome(work: Any) -> bytes:
    """What came of it, to the byte: 4 is not 4.0."""
    try:
        return canonical.encode(work())
    except Problem as problem:
        return problem.message.encode()


@given(SCHEMAS, VALUES, st.booleans())
def test_it_gives_what_fitted_gives(schema: dict[str, Any], value: Any, typebox: bool) -> None:
    told = _outcome(lambda: fitted("t", schema, value, typebox=typebox))
    assert _outcome(lambda: Fitting("t", schema, typebox=typebox)(value)) == told


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 4.0),
        ({"anyOf": [{"type": "number"}, {"type": "string"}]}, "4"),
        ({"type": "object", "properties": {"a": {"type": ["integer", "null"]}}}, {"a": 4.0}),
        (
            {"type": "object", "patternProperties": {"a": {}}, "additionalProperties": {"type": "number"}},
            {"a": "4"},
        ),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "number"}}, ["4"]),
        ({"$ref": "#/$defs/text", "type": "number", "$defs": {"text": {"type": "string"}}}, "4"),
    ],
)
def test_what_may_be_converted_although_it_is_valid_is_not_steady(schema: dict[str, Any], value: Any) -> None:
    assert not steady(schema)
    with contextlib.suppress(Problem):  # which of them holds is for the schema to say
        assert canonical.encode(Fitting("t", schema)(value)) == canonical.encode(fitted("t", schema, value))


def test_an_ordinary_tool_is_steady_and_its_arguments_are_a_copy() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "array", "items": {}}}}
    given = {"path": "a", "lines": [{"n": 1}]}
    found = Fitting("t", schema)(given)
    assert steady(schema) and found == given and found is not given and found["lines"][0] is not given["lines"][0]


def test_a_schema_without_end_is_not_steady() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(40):
        schema = {"type": "array", "items": schema}
    assert not steady(schema)
