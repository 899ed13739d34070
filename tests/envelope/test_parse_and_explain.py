"""Parsing gives the result or the Problem; explaining gives sentences and a next step."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings

from forestay.envelope import Envelope, encode, failure, success
from forestay.envelope.explanation import explain
from forestay.envelope.pages import offset_page
from forestay.envelope.types import Error
from forestay.envelope.validate import decode, parse
from forestay.kernel import TABLE, Ids, ManualClock, Problem
from tests.envelope.strategies import envelopes


@given(envelopes())
@settings(max_examples=60, deadline=None)
def test_parsing_gives_the_result_or_raises_the_problem(envelope: Envelope) -> None:
    try:
        result = parse(encode(envelope))
    except Problem as problem:
        assert isinstance(envelope.error, Error)
        assert problem.row.lafs == envelope.error.code
        assert problem.retry_after_ms == envelope.error.retry_after_ms
        return
    assert envelope.success and result == envelope.result


@pytest.mark.parametrize("key", sorted(TABLE))
def test_a_problem_survives_the_way_through_an_envelope(key: str, clock: ManualClock, ids: Ids) -> None:
    sent = Problem(key, "It failed.", retry_after_ms=7, at="$.x", limit=3)
    with pytest.raises(Problem) as caught:
        parse(encode(failure(sent, "op", clock=clock, ids=ids)))
    got = caught.value
    assert (got.key, got.message, got.retry_after_ms) == (key, "It failed.", 7)
    assert got.details["at"] == "$.x" and got.details["limit"] == 3


def test_a_foreign_code_is_kept_or_refused_as_asked(clock: ManualClock, ids: Ids) -> None:
    made = failure(Problem("timeout", "Slow."), "op", clock=clock, ids=ids)
    assert isinstance(made.error, Error)
    foreign = msgspec.structs.replace(
        made, error=msgspec.structs.replace(made.error, code="E_THEIRS_ONLY", details={"message": 1, "key": 2})
    )
    with pytest.raises(Problem) as kept:
        parse(encode(foreign))
    assert kept.value.details["code"] == "E_THEIRS_ONLY"
    with pytest.raises(Problem) as refused:
        parse(encode(foreign), require_registered=True)
    assert refused.value.key == "schema_mismatch"


@given(envelopes())
@settings(max_examples=30, deadline=None)
def test_every_envelope_can_be_explained(envelope: Envelope) -> None:
    told = explain(envelope)
    assert told.sentences and told.next
    assert told.automatic is True or not envelope.success


def test_an_explanation_says_what_to_do(clock: ManualClock, ids: Ids) -> None:
    busy = explain(failure(Problem("rate_limited", "Busy.", retry_after_ms=2500), "op", clock=clock, ids=ids))
    assert (busy.action, busy.automatic) == ("wait", True) and "2.5 seconds" in busy.next
    denied = explain(failure(Problem("permission_denied", "No."), "op", clock=clock, ids=ids))
    assert denied.automatic is False and any("person" in sentence for sentence in denied.sentences)
    more = success("op", [1], page=offset_page(limit=1, offset=0, has_more=True), clock=clock, ids=ids)
    assert "next page" in explain(more).next


def test_importing_the_envelope_brings_no_transport() -> None:
    heavy = ["grpc", "mcp", "a2a", "starlette", "asyncio"]
    code = f"import sys, forestay.envelope; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_decode_takes_text_too(clock: ManualClock, ids: Ids) -> None:
    made = success("op", {"a": "é"}, clock=clock, ids=ids)
    assert decode(encode(made).decode()) == made
