"""What our validator accepts is what the contract's schema accepts (V1), and our generated schemas agree with both.

`jsonschema` judges everything but the formats, which it does not check without further packages; `jsonschema-rs`
judges those too, and follows ECMA 262 for patterns.
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import jsonschema
import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forestay.envelope import Envelope, decode, encode, project, schemas
from forestay.envelope.formats import is_date_time, is_uri
from forestay.kernel import Problem
from tests.contracts.lafs.mutations import BASES, TIMES, URIS, documents, mutated
from tests.contracts.lafs.schema import envelope_schemas, published
from tests.envelope.strategies import envelopes

FAST = [jsonschema_rs.validator_for(schema, validate_formats=True) for schema in envelope_schemas()]
SLOW = [jsonschema.Draft7Validator(schema) for schema in envelope_schemas()]
OWN = jsonschema_rs.validator_for(schemas()["envelope"], validate_formats=True)
SHOWN = {"minimal": "envelope-minimal", "standard": "envelope-standard", "full": "envelope"}
LEVELS = {level: jsonschema_rs.validator_for(schemas()[name]) for level, name in SHOWN.items()}


def accepted(document: Any) -> bool:
    try:
        decode(msgspec.json.encode(document))
    except Problem as problem:
        assert problem.key in ("schema_mismatch", "invalid_json"), problem.message
        return False
    return True


def formats_hold(document: Any) -> bool:
    meta = document.get("_meta")
    time = meta.get("timestamp") if isinstance(meta, dict) else None
    error = document.get("error")
    uri = error.get("docUrl") if isinstance(error, dict) else None
    return (not isinstance(time, str) or is_date_time(time)) and (not isinstance(uri, str) or is_uri(uri))


def judges(document: dict[str, Any]) -> set[bool]:
    """What everybody says; one element when they agree."""
    return {accepted(document), OWN.is_valid(document), *(fast.is_valid(document) for fast in FAST)}


def test_v1_our_validator_and_the_contracts_schema_say_the_same_of_thousands() -> None:
    said = {True: 0, False: 0}
    for seed in range(10_000):
        document = mutated(seed)
        verdict = judges(document)
        assert len(verdict) == 1, document
        said[verdict.pop()] += 1
    assert min(said.values()) > 2000  # both answers are well represented


def test_v1_the_reference_validator_says_the_same_but_for_formats() -> None:
    for seed in range(1500):
        document = mutated(seed)
        for slow in SLOW:
            assert accepted(document) == (slow.is_valid(document) and formats_hold(document)), document


@given(documents())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_v1_whatever_the_values(document: dict[str, Any]) -> None:
    assert len(judges(document)) == 1


def damaged(seed: int) -> bytes:
    """The text of an envelope with a few bytes changed, lost, doubled or swapped for telling ones."""
    random = Random(seed)
    data = bytearray(msgspec.json.encode(random.choice(BASES)))
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(data))
        end = place + random.randint(1, 12)
        change = random.randrange(4)
        if change == 0:
            data[place] = random.randrange(256)
        elif change == 1:
            del data[place:end]
        elif change == 2:
            data[place:place] = data[place:end]
        else:
            data[place:place] = random.choice(
                [b"\\", b'"', b" ", b"\x00", b"1e400", b"NaN", b",", b"\\u0022", b"{", b"]"]
            )
    return bytes(data)


def read_carefully(data: bytes) -> Any:
    """The standard library's parser, made as strict as JSON is; None when it is no JSON."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise ValueError("twice")
        return members

    def finite(text: str) -> float:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(text)
        return value

    def never(text: str) -> None:
        raise ValueError(text)

    try:
        text = data.decode("utf-8")
        document = json.loads(text, object_pairs_hook=once, parse_constant=never, parse_float=finite)
        json.dumps(document, ensure_ascii=False).encode()  # no lone surrogate
    except ValueError:
        return None
    return document


@pytest.mark.parametrize("start", range(0, 6000, 1500))
def test_v2_damaged_text_is_judged_as_a_careful_parser_and_the_schema_do(start: int) -> None:
    for seed in range(start, start + 1500):
        data = damaged(seed)
        document = read_carefully(data)
        expected = isinstance(document, dict) and FAST[0].is_valid(document)
        try:
            decode(data)
            got = True
        except Problem:
            got = False
        assert got == expected, (seed, data)


@pytest.mark.sweep
@given(documents())
@settings(max_examples=5_000, deadline=None, suppress_health_check=list(HealthCheck))
def test_v1_whatever_the_values_at_length(document: dict[str, Any]) -> None:
    assert len(judges(document)) == 1


@pytest.mark.sweep
def test_v1_of_hundreds_of_thousands() -> None:
    for seed in range(10_000, 300_000):
        assert len(judges(mutated(seed))) == 1, seed


@pytest.mark.parametrize("text", TIMES)
def test_moments_are_judged_as_a_format_validator_does(text: str) -> None:
    judge = jsonschema_rs.validator_for({"type": "string", "format": "date-time"}, validate_formats=True)
    assert is_date_time(text) == judge.is_valid(text)


@pytest.mark.parametrize("text", URIS)
def test_addresses_are_judged_as_a_format_validator_does(text: str) -> None:
    judge = jsonschema_rs.validator_for({"type": "string", "format": "uri"}, validate_formats=True)
    assert is_uri(text) == judge.is_valid(text)


@given(
    st.from_regex(re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?Z"), fullmatch=True)
)
@settings(max_examples=200, deadline=None)
def test_random_moments_are_judged_alike(text: str) -> None:
    judge = jsonschema_rs.validator_for({"type": "string", "format": "date-time"}, validate_formats=True)
    assert is_date_time(text) == judge.is_valid(text)


@given(envelopes())
@settings(max_examples=80, deadline=None)
def test_whatever_is_built_validates_and_comes_back_as_it_was(envelope: Envelope) -> None:
    data = encode(envelope)
    assert decode(data) == envelope
    document = msgspec.json.decode(data)
    for fast in FAST:
        assert fast.is_valid(document)


@given(envelopes(), st.sampled_from(["minimal", "standard", "full"]))
@settings(max_examples=80, deadline=None)
def test_p3_a_projection_is_valid_for_its_level(envelope: Envelope, level: Any) -> None:
    shown = project(envelope, level)
    assert LEVELS[level].is_valid(msgspec.json.decode(msgspec.json.encode(shown)))
    if level == "full":
        assert FAST[0].is_valid(shown)
    again = project({"$schema": "x", **shown} if level == "full" else shown, level)
    assert {**again, "$schema": 0} == {**shown, "$schema": 0}


def test_the_generated_schemas_are_schemas() -> None:
    for schema in schemas().values():
        jsonschema.Draft7Validator.check_schema(schema)


def test_the_context_ledger_schema_agrees_with_the_contracts() -> None:
    contract = published("context-ledger.schema.json")
    ours = schemas()["context-ledger"]
    needed = {"ledgerId", "version", "createdAt", "updatedAt", "entries", "checksum", "maxEntries"}
    assert set(ours["required"]) == needed and ours["additionalProperties"] is False
    if contract is not None:
        assert set(contract["required"]) == set(ours["required"])
        assert set(contract["properties"]) == set(ours["properties"])
