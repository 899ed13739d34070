"""Nothing is lost at ingest (C6; X1 to X3 of `extract.py`, F1 of `facts.py`)."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.kernel import Ledger, ManualClock
from forestay.models import words
from forestay.relay.extract import claim, entities, relation, units

from .conftest import make_relay
from .documents import KINDS

_RULE = re.compile(r"[\s\-=_*#|:+~·•]*\Z")
lines = st.sampled_from(
    [
        "", "", "# Title", "---", "====", "```", "~~~py", "| a | b |", "|---|---|", "- item one", "  more of it",
        "1. first", "key: value", "name = x", "{", "}", '{"a": [1, 2]}', "[x](y) link",
        "A sentence. Another one! Dr. Who? Yes.",
        "2026-01-01T10:00:00 INFO up", "a,b,c", "1,2,3", "def f(x):", "    return x", "你好。世界！", "🚢🚢",
        "…", "\t", "word", "x" * 1500, "{" * 5, 'a "quoted', "\x00\x07", "e\u0301",
    ]
)  # fmt: skip


def check_partition(text: str) -> None:
    covered = [0] * len(text)
    before = 0
    for unit in units(text):
        assert before <= unit.start < unit.end <= len(text)
        before = unit.end
        assert not text[unit.start].isspace()
        assert not text[unit.end - 1].isspace()
        for at in range(unit.start, unit.end):
            covered[at] += 1
    at = 0
    for line in text.split("\n"):
        if not _RULE.match(line):
            for offset, character in enumerate(line):
                if not character.isspace():
                    assert covered[at + offset] == 1, (line, character)
        at += len(line) + 1


@given(st.lists(lines, max_size=30).map("\n".join))
@settings(max_examples=300)
def test_x1_x3_every_character_is_in_one_unit_in_order(text: str) -> None:
    check_partition(text)


@given(st.text(max_size=400))
@settings(max_examples=300)
def test_x1_for_any_text(text: str) -> None:
    check_partition(text)


@pytest.mark.parametrize("kind", KINDS)
def test_x1_for_documents(kind: str) -> None:
    for seed in range(5):
        check_partition(KINDS[kind](random.Random(seed)))


def kinds(text: str) -> list[tuple[str, str]]:
    return [(unit.kind, text[unit.start : unit.end]) for unit in units(text)]


def test_structure_is_recognised() -> None:
    text = (
        "# Harbour\n\nDr. Ruiz came at noon, e.g. by boat. She left!\n\n| name | depth |\n|---|---|\n| north | 12 |\n\n"
        '- mooring one\n  with a rope\n- mooring two\n\n```py\na = 1\n\nb = 2\n```\n\n{"a": 1,\n "b": [2]}\n\n'
        "owner: Ruiz\nphone: 555\n\nid,name,depth\n1,north,12\n2,south,9\n\ndef f(x):\n    return x\n"
    )
    assert kinds(text) == [
        ("heading", "# Harbour"),
        ("sentence", "Dr. Ruiz came at noon, e.g. by boat."),
        ("sentence", "She left!"),
        ("row", "| name | depth |"),
        ("row", "| north | 12 |"),
        ("item", "- mooring one\n  with a rope"),
        ("item", "- mooring two"),
        ("code", "```py\na = 1\n\nb = 2\n```"),
        ("json", '{"a": 1,\n "b": [2]}'),
        ("pair", "owner: Ruiz"),
        ("pair", "phone: 555"),
        ("row", "id,name,depth"),
        ("row", "1,north,12"),
        ("row", "2,south,9"),
        ("code", "def f(x):\n    return x"),
    ]


def test_context_is_the_path_of_headings_and_the_head_of_the_table() -> None:
    text = "# A\n\n## B\n\n| name | depth |\n|---|---|\n| north | 12 |\n\n# C\n\nText."
    found = {text[unit.start : unit.end]: unit.context for unit in units(text)}
    assert found["| north | 12 |"] == "A > B > name depth"
    assert found["Text."] == "C"


def test_entities() -> None:
    text = "Anna Keller saw CVE-2024-12345 at 10.0.0.7:8080 on 2026-03-01: v2.1.0 wrote 45 GB, mail a@b.org, see https://x.org/y?z=1."
    assert list(entities(text)) == [
        ("name", "Anna Keller"),
        ("cve", "CVE-2024-12345"),
        ("address", "10.0.0.7:8080"),
        ("date", "2026-03-01"),
        ("version", "v2.1.0"),
        ("number", "45 GB"),
        ("email", "a@b.org"),
        ("url", "https://x.org/y?z=1"),
    ]


def test_relations_come_from_the_opening_words() -> None:
    assert relation(words("However, it failed")) == "contrast"
    assert relation(words("Therefore the ship waits")) == "cause-effect"
    assert relation(words("It was late")) == "elaboration"
    assert relation(words("The ship waits")) == ""


def test_a_pair_that_names_a_record_stands_above_the_others() -> None:
    text = "Ship: Aurora\nBerth: 7\n\nport: 80\nhost: a\n\nAnn: Hello\nBob: Yes\nAnn: Good"
    assert [unit.context for unit in units(text)] == ["Ship: Aurora"] * 2 + [""] * 5


def test_claims_need_a_subject_and_one_value() -> None:
    assert claim("depth: 12 m", "pair") == ("depth", "12 m")
    assert claim("The depth of the basin is 12 m.", "sentence") == ("depth of the basin # m", "12 m")
    assert claim("The basin is 12 m deep.", "sentence") == ("basin # m deep", "12 m deep")
    assert claim("Ann: I will be there at 12.", "pair") == ("ann", "")
    assert claim("User: 12", "pair") is None
    assert claim("The sky is blue.", "sentence") is None
    assert claim("| a | 1 |", "row") is None


async def _found_again(
    ledger: Ledger, clock: ManualClock, count: int, share: slice = slice(None)
) -> tuple[int, list[str]]:
    """Ingest `count` documents; look each fact of `share` up by its words: how many facts, and which were missed."""
    relay = make_relay(ledger, clock)
    session = await relay.init("library", config={"ingest_bytes_per_minute": 10**9})
    rng = random.Random(9)
    names = list(KINDS)
    missed: list[str] = []
    for number in range(count):
        text = KINDS[names[number % len(names)]](rng)
        raw = text.encode()
        result = await session.ingest(text, f"doc {number}")
        for id in result.fact_ids:
            fact = session.fact(id)
            assert raw[fact.start : fact.end].decode() == fact.text
        expected = [text[unit.start : unit.end] for unit in units(text)]
        assert [session.fact(id).text for id in result.fact_ids] == expected
    for fact in session.warm.facts[share]:
        found = await session.facts(fact.text, top_k=10)
        if not any(item.text == fact.text for item, _ in found):
            missed.append(fact.text)
    return len(session.warm.facts), missed


async def test_c6_every_fact_is_found_by_its_own_words_and_its_offsets_point_at_it(
    ledger: Ledger, clock: ManualClock
) -> None:
    facts, missed = await _found_again(ledger, clock, 45, slice(None, None, 5))
    assert facts > 1000
    assert missed == []


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(4))
async def test_c6_for_a_thousand_documents(part: int, ledger: Ledger, clock: ManualClock) -> None:
    """All of them in one library; every fact is looked for in one of the four parts."""
    facts, missed = await _found_again(ledger, clock, 1000, slice(part, None, 4))
    assert facts > 30_000
    assert missed == []


@given(st.text(max_size=300))
@settings(max_examples=100)
def test_f1_offsets_are_bytes_of_the_raw_source(text: str) -> None:
    from forestay.relay.facts import GENESIS, batches, facts_of
    from forestay.relay.guard import clean

    raw = text.encode("utf-8")
    for batch in batches(text, "ingest:x", window=0, first=0, key=b"k" * 32, parent=GENESIS):
        for fact in facts_of(batch):
            assert clean(raw[fact.start : fact.end].decode())[0] == fact.text
