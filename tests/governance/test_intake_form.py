"""Forms that strangers fill in (Y1, Y2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.governance import form_fields, form_inputs, form_page, form_token
from forestay.kernel import Problem
from tests.runs.documents import node, workflow

KEY, DAY = b"k" * 32, 24 * 3600 * 1000
VARIABLES: list[dict[str, Any]] = [
    {"name": "order", "type": "string", "required": True, "description": "What do you need?"},
    {"name": "count", "type": "number", "defaultValue": 1},
    {"name": "urgent", "type": "boolean"},
    {"name": "pin", "type": "string", "sensitive": True, "defaultValue": "0000"},
    {"name": "more", "type": "object"},
]
ORDER = workflow("order", [node("n")], variables=VARIABLES)


def test_y2_a_field_for_each_variable_that_a_person_can_type() -> None:
    fields = form_fields(ORDER)
    assert [(item.name, item.kind, item.required, item.default) for item in fields] == [
        ("order", "text", True, ""),
        ("count", "number", False, "1"),
        ("urgent", "checkbox", False, ""),
        ("pin", "password", False, ""),  # what is hidden is not shown to strangers
    ]
    needs = workflow("order", [node("n")], variables=[{"name": "lines", "type": "array", "required": True}])
    with pytest.raises(Problem) as refused:
        form_fields(needs)
    assert refused.value.key == "schema_mismatch"


def test_y2_a_run_gets_what_its_workflow_declares_and_nothing_else() -> None:
    fields = form_fields(ORDER)
    sent = {"order": "two\x00 boats", "count": "2.5", "urgent": "on", "more": "{}", "tenant": "other"}
    assert form_inputs(fields, sent) == {"order": "two boats", "count": 2.5, "urgent": True}
    assert form_inputs(fields, {"order": "x", "count": "3"}) == {"order": "x", "count": 3, "urgent": False}
    for wrong in ({}, {"order": "x", "count": "many"}, {"order": "x", "count": "nan"}, {"order": "x" * 20_001}):
        with pytest.raises(Problem) as refused:
            form_inputs(fields, wrong)
        assert refused.value.key == "schema_mismatch"


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**41), st.integers(0, DAY - 1))
def test_y1_a_page_is_one_event_for_a_day(chance: bytes, at: int, later: int) -> None:
    token = form_token(KEY, "sub_1", at, chance)
    assert form_page(KEY, "sub_1", token, at + later) == form_page(KEY, "sub_1", token, at)
    for key, subscription, now in ((KEY, "sub_2", at), (b"o" * 32, "sub_1", at), (KEY, "sub_1", at + DAY)):
        with pytest.raises(Problem) as refused:
            form_page(key, subscription, token, now)
        assert refused.value.key == "permission_denied"


@given(st.text(max_size=120))
def test_y1_what_was_not_made_here_is_no_token(token: str) -> None:
    """A text that fits by chance would have to hold an HMAC of 256 bits."""
    with pytest.raises(Problem):
        form_page(KEY, "sub_1", token, 0)
