"""Canonical JSON, and what foreign JSON gets when it is malformed, huge or deep."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel import canonical
from forestay.kernel.problems import Problem


class Inner(msgspec.Struct):
    n: int


class Outer(msgspec.Struct):
    inner: list[Inner]


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_what_is_written_reads_back_and_has_one_form(value: object) -> None:
    data = canonical.encode(value)
    assert canonical.decode(data) == value
    assert canonical.encode(canonical.decode(data)) == data


@given(st.dictionaries(_texts, st.integers(), max_size=8))
def test_keys_are_sorted_and_there_is_no_white_space(value: dict[str, int]) -> None:
    expected = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical.decode(canonical.encode(value)) == json.loads(expected)
    assert list(json.loads(canonical.encode(value))) == sorted(value)


def test_the_digest_names_its_algorithm() -> None:
    assert canonical.digest({"b": 1, "a": 2}) == canonical.digest({"a": 2, "b": 1})
    assert canonical.digest([]) == "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"{", "invalid_json"),
        (b'{"a":1} x', "invalid_json"),
        (b'"\\ud800"', "invalid_json"),
        (b'"\xff\xfe"', "invalid_json"),
        (b"[" * 100_000, "nesting_too_deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nesting_too_deep"),
        (b"", "invalid_json"),
    ],
)
def test_malformed_documents_are_problems(data: bytes, key: str) -> None:
    with pytest.raises(Problem) as caught:
        canonical.decode(data)
    assert caught.value.key == key


def test_a_document_of_200_mb_is_refused_before_it_is_read() -> None:
    with pytest.raises(Problem) as caught:
        canonical.decode(b" " * (200 * 1024 * 1024))
    assert caught.value.key == "payload_too_large"
    assert caught.value.details["limit"] == canonical.MAX_DOCUMENT_BYTES


def test_brackets_inside_strings_are_not_nesting() -> None:
    assert canonical.decode(json.dumps("[{" * 500).encode()) == "[{" * 500
    assert canonical.decode(b'["' + b'\\"[' * 300 + b'"]') == ['"[' * 300]


def test_a_wrong_shape_says_where() -> None:
    with pytest.raises(Problem) as caught:
        canonical.decode(b'{"inner":[{"n":1},{"n":"x"}]}', Outer)
    assert caught.value.key == "schema_mismatch"
    assert caught.value.details["at"] == "$.inner[1].n"


@pytest.mark.parametrize("value", ["\ud800", {"a": {1, 2}.__iter__()}, {"k": object()}])
def test_what_json_cannot_carry_is_a_problem(value: object) -> None:
    with pytest.raises(Problem) as caught:
        canonical.encode(value)
    assert caught.value.key == "invalid_json"


def test_a_cycle_is_a_problem() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(Problem):
        canonical.encode(loop)


@pytest.mark.parametrize("value", [{"a": "x\0y"}, ["\0"], {"a\0": 1}])
def test_strict_refuses_nul(value: object) -> None:
    with pytest.raises(Problem) as caught:
        canonical.encode_strict(value)
    assert caught.value.key == "invalid_text"


def test_strict_knows_an_escaped_backslash_from_a_nul() -> None:
    assert canonical.encode_strict("\\u0000") == b'"\\\\u0000"'
    with pytest.raises(Problem):
        canonical.encode_strict("\\\0")


@pytest.mark.parametrize("value", [math.nan, [1, math.inf], {"a": {"b": -math.inf}}])
def test_strict_refuses_numbers_that_would_become_null(value: object) -> None:
    with pytest.raises(Problem):
        canonical.encode_strict(value)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_the_depth_that_is_read_is_the_depth_that_is_said(opening: str, closing: str) -> None:
    most = canonical.MAX_DEPTH
    assert canonical.decode(opening * most + "1" + closing * most)
    with pytest.raises(Problem) as refused:
        canonical.decode(opening * (most + 1) + "1" + closing * (most + 1))
    assert refused.value.key == "nesting_too_deep"
    assert refused.value.details["offset"] == len(opening) * most


def test_what_stands_side_by_side_and_brackets_in_a_string_are_not_deep() -> None:
    assert canonical.decode("[" + ",".join(["[{}]"] * 500) + "]") == [[{}]] * 500
    assert canonical.decode('"' + "[{" * 500 + '"') == "[{" * 500


def test_a_document_may_be_as_long_as_the_limit() -> None:
    assert canonical.decode(b"[1,2]", limit=5) == [1, 2]
    with pytest.raises(Problem) as refused:
        canonical.decode(b"[1,2]", limit=4)
    assert (refused.value.key, refused.value.details["observed"]) == ("payload_too_large", 5)


class _Measured(msgspec.Struct):
    value: float | None


def test_strict_takes_null_and_refuses_a_nan_in_a_struct() -> None:
    assert canonical.encode_strict({"a": None, "b": [1.5, None]}) == b'{"a":null,"b":[1.5,null]}'
    assert canonical.encode_strict(_Measured(None)) == b'{"value":null}'
    with pytest.raises(Problem):
        canonical.encode_strict(_Measured(float("nan")))


def test_why_a_value_cannot_be_written_is_said_in_plain_words() -> None:
    knot: list[object] = []
    knot.append(knot)
    for value, reason in ((knot, "nested too deeply, or a cycle"), ("\ud800", "a string holds a lone surrogate")):
        with pytest.raises(Problem) as refused:
            canonical.encode(value)
        assert refused.value.details["reason"].startswith(reason)


@given(values)
def test_a_reader_of_the_bytes_gets_the_plain_value(value: object) -> None:
    data = canonical.encode(value)
    if "\0" in str(canonical.decode(data)) or b"\\u0000" in data:
        return  # refused, or looks like it: the other tests ask
    assert canonical.encode_plain(value) == (data, canonical.decode(data))
    assert canonical.encode_strict(value) == data


@pytest.mark.parametrize("value", [{"a": [None, float("nan")]}, (None, float("inf")), _Measured(float("nan"))])
def test_no_plain_value_stands_for_a_number_that_json_has_not(value: object) -> None:
    with pytest.raises(Problem, match="NaN"):
        canonical.encode_plain(value)
    assert canonical.encode_plain((None, 1.5)) == (b"[null,1.5]", [None, 1.5])
    with pytest.raises(Problem, match="U\\+0000"):
        canonical.encode_plain(["\0"])
