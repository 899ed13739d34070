"""Hypothesis strategies: JSON trees, and envelopes as `success` and `failure` build them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from forestay.envelope import Envelope, Warning, failure, success
from forestay.envelope.pages import cursor_page, no_page, offset_page
from forestay.kernel import TABLE, Ids, ManualClock, Problem, SeededRandomness

text = st.text(st.characters(codec="utf-8"), max_size=40)
keys = st.one_of(st.sampled_from(["id", "name", "code", "message", "items", "__proto__", ""]), text)
numbers = st.one_of(
    st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**30), 10**30)
)
scalars = st.one_of(st.none(), st.booleans(), numbers, text)


def trees(max_leaves: int = 40) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(keys, inner, max_size=6)),
        max_leaves=max_leaves,
    )


objects = st.dictionaries(keys, trees(), max_size=6)
results = st.one_of(st.none(), objects, st.lists(trees(), max_size=8))
counts = st.integers(0, 1000)
pages = st.one_of(
    st.none(),
    st.builds(no_page),
    st.builds(offset_page, limit=st.integers(1, 1000), offset=counts, has_more=st.booleans(), total=st.none() | counts),
    st.builds(cursor_page, next_cursor=st.none() | text, limit=st.none() | st.integers(1, 1000)),
)
warnings = st.lists(st.builds(Warning, code=text, message=text, replacement=text), max_size=3)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    details = draw(st.dictionaries(st.from_regex(r"[a-z]{4,12}", fullmatch=True), trees(10), max_size=3))
    for taken in ("key", "message", "self"):
        details.pop(taken, None)
    after = draw(st.none() | st.integers(0, 10**6))
    return Problem(draw(st.sampled_from(sorted(TABLE))), draw(st.text(max_size=1500)), retry_after_ms=after, **details)


@st.composite
def envelopes(draw: st.DrawFn, result: st.SearchStrategy[Any] = results) -> Envelope:
    clock = ManualClock()
    common: dict[str, Any] = {
        "clock": clock,
        "ids": Ids(clock, SeededRandomness(1)),
        "result": draw(result),
        "transport": draw(st.sampled_from(["cli", "http", "grpc", "sdk"])),
        "page": draw(pages),
        "warnings": draw(warnings),
        "request_id": draw(st.none() | st.text(st.characters(codec="utf-8"), min_size=3, max_size=128)),
        "session_id": draw(st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=256)),
        "context_version": draw(st.integers(0, 2**70)),
        "strict": draw(st.booleans()),
        "mvi": draw(st.sampled_from(["minimal", "standard", "full", "custom"])),
        "extensions": draw(st.none() | st.dictionaries(text.map("x-".__add__), trees(5), max_size=2)),
    }
    operation = draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=128))
    if draw(st.booleans()):
        return success(operation, **common)
    return failure(draw(problems()), operation, **common)
