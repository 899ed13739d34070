"""A line is found by what stands around it, and the reasons that are told are those that counted."""

from __future__ import annotations

import pytest

from forestay.kernel import Ledger, ManualClock, Problem
from forestay.models import words
from forestay.relay.evaluation import questions_of
from forestay.relay.extract import dates
from forestay.relay.facts import speaker
from forestay.relay.ranking import Terms, rank

from .conftest import make_relay

CHAT = """# 8 March 2025

Mara: I went to the doctor about my knee.
Jonas: And? What did she say?
Mara: Nothing torn. Six weeks without sport.
Jonas: That is long.

# 14 May 2025

Mara: We walked to the lighthouse.
Jonas: The knee is fine again?
Mara: It is.
"""
TABLE = "| part | price |\n|---|---|\n| knee pad | 12 |\n| helmet | 40 |\n| gloves | 9 |\n"


async def _found(ledger: Ledger, clock: ManualClock, text: str, query: str, terms: Terms | None = None) -> list[str]:
    session = await make_relay(ledger, clock).init("x")
    await session.ingest(text, "text")
    warm = session.warm
    return [warm.facts[item.number].text for item in rank(warm, query, terms=terms or Terms())]


async def test_an_answer_is_found_by_the_question_before_it(ledger: Ledger, clock: ManualClock) -> None:
    query = "What came of the visit to the doctor?"
    assert "Mara: Nothing torn. Six weeks without sport." in (await _found(ledger, clock, CHAT, query))[:3]
    alone = await _found(ledger, clock, CHAT, query, Terms(neighbours=False))
    assert alone == ["Mara: I went to the doctor about my knee."]


@pytest.mark.parametrize(
    "stamp",
    [
        "[8/5/25, 10:0{}:12] {}: ",
        "08.05.2025, 10:0{} - {}: ",
        "8/5/25, 10:0{} PM - {}: ",
        "2025-05-08 10:0{} {}: ",
        "[10:0{}] <{}> ",
        "\u200e[8/5/25, 10:0{}] {}: ",
    ],
)
async def test_lines_of_a_chats_export_are_talk(ledger: Ledger, clock: ManualClock, stamp: str) -> None:
    said = ("I sold the old dinghy.", "For how much?", "Two hundred euros.")
    names = ("Mara", "Jonas", "Mara")
    lines = [stamp.format(at, name) + text for at, (name, text) in enumerate(zip(names, said, strict=True))]
    session = await make_relay(ledger, clock).init("x")
    await session.ingest("\n".join(lines) + "\n", "chat.txt")
    facts = session.warm.facts
    assert [fact.talk for fact in facts] == [True] * 3
    assert [speaker(fact.text) for fact in facts] == ["Mara", "Jonas", "Mara"]
    assert session.warm.speakers == {*words("Mara Jonas")}
    found = [facts[item.number].text for item in rank(session.warm, "What did Mara get for the dinghy?")]
    assert any(text.endswith("Two hundred euros.") for text in found)


@pytest.mark.parametrize(
    "log",
    [
        "10:01:22 ERROR: disk full\n10:01:23 INFO: going on\n10:01:24 ERROR: disk full again\n",
        "10:01:22 nginx: started\n10:01:23 sshd: stopped\n10:01:24 nginx: stopped\n",
        "10:01 Mara: alone here.\n10:02 Mara: still alone.\n",
    ],
    ids=["levels", "programs", "one name"],
)
async def test_lines_of_a_log_are_no_talk(ledger: Ledger, clock: ManualClock, log: str) -> None:
    session = await make_relay(ledger, clock).init("x")
    await session.ingest(log, "log.txt")
    assert not any(fact.talk for fact in session.warm.facts)


async def test_a_line_lends_nothing_across_a_heading(ledger: Ledger, clock: ManualClock) -> None:
    assert "Mara: We walked to the lighthouse." not in await _found(ledger, clock, CHAT, "the long pause")


async def test_a_row_lends_nothing_to_the_next_row(ledger: Ledger, clock: ManualClock) -> None:
    assert await _found(ledger, clock, TABLE, "knee pad") == ["| knee pad | 12 |"]


async def test_a_setting_between_sentences_stands_for_itself(ledger: Ledger, clock: ManualClock) -> None:
    text = "The basin holds twelve boats.\n\nport: 80\n\nIt is deep."
    assert await _found(ledger, clock, text, "twelve boats") == ["The basin holds twelve boats."]


async def test_the_person_who_is_named_speaks(ledger: Ledger, clock: ManualClock) -> None:
    text = "Mara: The tram was late again today.\nJonas: The tram was late again today.\n" * 2
    found = await _found(ledger, clock, text, "Was the tram of Jonas late?")
    assert [line.partition(":")[0] for line in found[:2]] == ["Jonas", "Jonas"]


async def test_settings_are_not_talk(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock).init("x")
    await session.ingest("name: Aurora\nport: 7070\nhost: local\n", "settings")
    await session.ingest(CHAT, "chat")
    talk = {fact.source for fact in session.warm.facts if fact.talk}
    assert talk == {"ingest:chat"}
    assert session.warm.speakers == {"mara", "jona"}


def test_a_date_has_one_spelling() -> None:
    assert (
        dates("8 May 2025") == dates("May 8") == dates("2025-05-08") == dates("on the 8th of May") == ["@05", "@05-08"]
    )
    assert dates("in May") == ["@05"]
    assert dates("it may rain in march") == []


async def test_a_month_that_is_also_a_verb_finds_its_day(ledger: Ledger, clock: ManualClock) -> None:
    found = await _found(ledger, clock, CHAT, "What did Mara do in May?")
    assert set(found[:2]) == {"Mara: We walked to the lighthouse.", "Mara: It is."}


async def test_the_reasons_name_words_neighbours_speaker_and_date(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock).init("x")
    await session.ingest(CHAT, "chat")
    found = await session.explain("What did the doctor tell Mara in March about sport?", top_k=10)
    why = {fact.text: reason for fact, reason in found}["Mara: Nothing torn. Six weeks without sport."]
    assert set(why.words) == {"Mara", "March", "sport"}
    assert [(item.fact_id, set(item.words)) for item in why.lent] == [("f1", {"doctor"}), ("f2", {"say for tell"})]
    assert why.speaker == "Mara"
    assert why.dates == ["03"]
    assert why.meaning is None
    assert "f1 nearby has doctor" in why.told()
    plain = await session.facts("What did the doctor tell Mara in March about sport?", top_k=10)
    assert [(fact.id, round(score, 4)) for fact, score in plain] == [(fact.id, reason.score) for fact, reason in found]


async def test_an_evaluation_counts_what_is_found(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock).init("x")
    await session.ingest(CHAT, "chat")
    asked = questions_of(
        '{"question": "What came of the visit to the doctor?", "answer": "six weeks"}\n\n'
        '{"question": "Where did they walk?", "facts": ["f6"]}\n'
        '{"question": "Who won?", "answer": "nobody said"}\n'
        '{"question": "Umbrella?", "answer": "That is long."}\n'
    )
    measured = await session.evaluate(asked)
    recall = {setting.name: setting.recall["5"] for setting in measured.settings}
    assert (measured.questions, measured.unlabelled) == (3, ["Who won?"])
    assert recall["all signals"] == pytest.approx(2 / 3, abs=1e-4)
    assert recall["words alone"] == pytest.approx(1 / 3, abs=1e-4)
    assert [(miss.question, miss.place) for miss in measured.misses] == [("Umbrella?", None)]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"question": "x"}', '{"question": "x", "answer": "a", "facts": ["f1"]}', '{"quest": 1}', "{"]
)
def test_what_is_no_question_is_told_with_its_line(text: str) -> None:
    with pytest.raises(Problem) as caught:
        questions_of(text)
    assert caught.value.key == "invalid_request"
    assert "question" in str(caught.value.details["fix"])
