"""Compaction: what leaves the hot part is a copy or superseded, and everything is still there (K1 to K4)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.kernel import Draft, ManualClock
from forestay.models import words
from forestay.relay import Relay
from forestay.relay.compact import due, plan
from forestay.relay.facts import GENESIS, Fact, batches, view
from forestay.relay.ranking import rank
from forestay.relay.warm import Warm
from tests.relay.conftest import Pieces

LINES = st.sampled_from(
    [
        "port: 80",
        "port: 8080",
        "Basin one holds twelve boats.",
        "Basin one holds twelve boats!",
        "It is closed in winter.",
        "Ring the bell twice.",
        "| north | 12 |",
        "- 8 GB of memory",
        "- 8 GB of Memory",
        "# Harbour",
        "# Basin",
    ]
)
DOCUMENTS = st.lists(st.lists(LINES, min_size=1, max_size=6), min_size=1, max_size=12)


def warm_of(documents: list[list[str]], kinds: tuple[str, ...] = ("ingest", "window")) -> Warm:
    warm = Warm()
    for number, lines in enumerate(documents):
        source = f"{kinds[number % len(kinds)]}:{number}"
        for batch in batches(
            "\n\n".join(lines),
            source,
            window=number,
            first=len(warm.facts),
            key=b"k" * 32,
            parent=warm.parent or GENESIS,
        ):
            warm.apply("crp.extraction.complete", batch)
    return warm


def said(fact: Fact) -> tuple[str, ...]:
    return (fact.text, fact.kind, fact.context, fact.entity, fact.relation, fact.source.partition(":")[0])


def cold_numbers(warm: Warm) -> list[int]:
    return [fact.number for fact in warm.facts if fact.number in warm.cold]


def compact(warm: Warm) -> None:
    found = plan(warm.facts, cold_numbers(warm))
    warm.apply("crp.facts.compacted", found.draft().payload)


@settings(deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_k1_only_what_says_the_same_is_folded_and_every_statement_stays(
    first: list[list[str]], second: list[list[str]]
) -> None:
    warm = warm_of(first)
    before = {said(fact) for fact in warm.facts}
    ids = [(fact.id, fact.source, fact.start, fact.end, fact.hash, fact.signature) for fact in warm.facts]
    compact(warm)
    hot = [fact for fact in warm.facts if fact.number in warm.index]
    assert {said(fact) for fact in hot} == before
    for fact in warm.facts:
        assert (fact.number in warm.index) != (fact.number in warm.cold)
        if fact.folded_into >= 0:
            assert said(fact) == said(warm.facts[fact.folded_into])
            assert fact.number in warm.copies[fact.folded_into]
            assert not fact.relation
    assert ids == [(fact.id, fact.source, fact.start, fact.end, fact.hash, fact.signature) for fact in warm.facts]
    # A second compaction after more documents: what stood for others may be folded itself.
    for number, lines in enumerate(second, start=len(first)):
        for batch in batches(
            "\n\n".join(lines), f"ingest:{number}", window=9, first=len(warm.facts), key=b"k" * 32, parent=warm.parent
        ):
            warm.apply("crp.extraction.complete", batch)
    compact(warm)
    assert {said(fact) for fact in warm.facts if fact.number in warm.index} == {said(fact) for fact in warm.facts}
    listed = Counter(number for copies in warm.copies.values() for number in copies)
    assert set(listed) == {fact.number for fact in warm.facts if fact.folded_into >= 0}
    assert all(count == 1 for count in listed.values())
    assert all(warm.facts[stands].folded_into < 0 for stands in warm.copies)


@settings(deadline=None)
@given(DOCUMENTS)
def test_k3_the_cold_part_finds_every_fact_by_its_own_words(documents: list[list[str]]) -> None:
    warm = warm_of(documents)
    compact(warm)
    for fact in warm.facts:
        place = warm.index if fact.number in warm.index else warm.cold
        found = place.search(dict.fromkeys(words(fact.text), 1.0), len(warm.facts))
        assert fact.number in {number for number, _ in found}, fact.text


@settings(deadline=None)
@given(DOCUMENTS)
def test_n3_what_is_left_scores_as_if_the_rest_had_never_been_there(documents: list[list[str]]) -> None:
    warm = warm_of(documents, ("ingest",))
    compact(warm)
    left = [fact for fact in warm.facts if fact.number in warm.index]
    fresh = Warm()
    for fact in left:
        fresh.index.add(
            [*words(fact.text), *([fact.entity.lower()] if fact.entity and not fact.entity.isalnum() else [])],
            words(fact.context),
        )
    for fact in left:
        query = dict.fromkeys(words(fact.text), 1.0)
        mine = [(number, round(score, 9)) for number, score in warm.index.search(query, 100)]
        theirs = [(left[number].number, round(score, 9)) for number, score in fresh.index.search(query, 100)]
        assert mine == theirs


def test_k2_a_sentence_that_leans_on_another_is_never_folded() -> None:
    warm = warm_of(
        [["The north basin is deep.", "It is closed in winter."], ["The mill is old.", "It is closed in winter."]],
        ("ingest",),
    )
    compact(warm)
    assert [fact.folded_into for fact in warm.facts] == [-1] * 4


def test_copies_no_longer_crowd_out_what_else_is_known() -> None:
    warm = warm_of(
        [["Basin one holds twelve boats."]] * 400 + [["The mill near basin one grinds flour for the boats."]],
        ("ingest",),
    )
    question = "How many boats does basin one hold?"
    assert all(warm.facts[item.number].text.startswith("Basin") for item in rank(warm, question)[:200])
    compact(warm)
    assert {warm.facts[item.number].text for item in rank(warm, question)} == {
        "Basin one holds twelve boats.",
        "The mill near basin one grinds flour for the boats.",
    }
    assert len(warm.index) == 2 and len(warm.cold) == 399


def test_a_rejected_fact_no_longer_stands_for_its_copies() -> None:
    warm = warm_of([["Basin one holds twelve boats."]] * 3, ("ingest",))
    compact(warm)
    assert warm.copies == {2: [0, 1]}
    warm.apply("crp.facts.feedback", {"fact": 2, "action": "reject", "confidence": 1.0})
    assert warm.copies == {1: [0]}
    assert [item.number for item in rank(warm, "basin boats")] == [1]


def test_what_is_superseded_is_superseded_with_its_copies() -> None:
    warm = Warm()
    for text in ("port: 80", "port: 80", "port: 443"):
        place = {"window": 0, "first": len(warm.facts), "key": b"k" * 32, "parent": warm.parent}
        for batch in batches(text, "a", corrects=["a"], **place):
            warm.apply("crp.extraction.complete", batch)
    assert [(item.old, item.new) for item in warm.open_contradictions] == [(0, 2), (1, 2)]


def test_due_looks_at_size_and_growth() -> None:
    assert not due(4999, 0)
    assert due(5000, 0)
    assert not due(6000, 5000)
    assert due(6250, 5000)


async def test_k4_compaction_is_one_record_and_a_restart_folds_to_the_same(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "ledger.db"
    async with Relay.open(path, model=Pieces(["Yes."]), clock=clock) as relay:
        session = await relay.init("app")
        for number in range(4):
            await session.ingest("Basin one holds twelve boats.\n\nport: 80\n\nRing the bell.", f"{number}.md")
        before = len(await session.audit())
        made = await session.compact()
        assert len(made.folded) == 9
        assert len(await session.audit()) == before + 1
        assert not await session.compact(), "nothing more to do"
        found = await session.facts("twelve boats")
        assert [fact.source for fact, _ in found] == ["ingest:3.md"]
        every = await session.facts("twelve boats", include_superseded=True)
        assert {fact.source for fact, _ in every} == {f"ingest:{number}.md" for number in range(4)}
        assert view(session.fact("f0"))["folded_into"] == "f9"
        state = [(view(fact), fact.number in session.warm.index) for fact in session.warm.facts]
        copies = session.warm.copies
    async with Relay.open(path, model=Pieces(["Yes."]), clock=clock) as relay:
        again = await relay.session(session.id)
        assert [(view(fact), fact.number in again.warm.index) for fact in again.warm.facts] == state
        assert again.warm.copies == copies
        reply = await again.dispatch("", "How many boats?")
        assert reply.report.telemetry is not None
        assert reply.report.telemetry.facts_in_envelope == 3


async def test_it_happens_by_itself_when_a_session_has_many_facts(tmp_path: Path, clock: ManualClock) -> None:
    async with Relay.open(tmp_path / "ledger.db", model=Pieces(["Yes."]), clock=clock) as relay:
        session = await relay.init("app")
        await session.ingest("\n\n".join(f"Basin {n % 1000} is full." for n in range(5100)), "log.md")
        kinds = [record["event_type"] for record in await session.audit()]
        assert kinds.count("crp.facts.compacted") == 1
        assert len(session.warm.index) == 1000
        assert len(session.warm.facts) == 5100


async def test_an_interrupted_dispatch_is_not_compacted_under(tmp_path: Path, clock: ManualClock) -> None:
    async with Relay.open(tmp_path / "ledger.db", model=Pieces(["Yes."]), clock=clock) as relay:
        session = await relay.init("app")
        await session.ingest("Ring the bell.", "a.md")
        await session.ingest("Ring the bell.", "b.md")
        session.warm.apply(
            "crp.dispatch.start",
            {
                "dispatch_id": "d",
                "kind": "dispatch",
                "system_prompt": "",
                "task_input": "",
                "max_windows": None,
                "max_output_tokens": None,
                "flags": "{}",
                "auto_ingested": False,
                "goal": "",
                "query": "",
            },
        )
        assert not await session.compact()
        session.warm.dispatch = None
        assert await session.compact()


@pytest.mark.parametrize("kind", ["crp.facts.compacted"])
def test_k4_the_record_says_it_all(kind: str) -> None:
    warm = warm_of([["port: 80"], ["port: 80"]], ("ingest",))
    draft = plan(warm.facts, []).draft()
    assert isinstance(draft, Draft) and draft.type == kind
    assert draft.payload == {"folded": [[0, 1]], "archived": ()}
