"""The embedded model on the 200 questions of the benchmark: what was reached is not lost again."""

from __future__ import annotations

import pytest
from benchmarks.local_model import counted
from benchmarks.local_questions import FIRST, SECOND

from forestay.models.local.expects import holds


def test_there_are_two_hundred_questions_and_each_answer_stands_in_its_text() -> None:
    texts = (*FIRST, *SECOND)
    assert [len(text.answered) for text in texts] == [len(text.unanswered) for text in texts] == [10] * 10
    assert all(words in text.text for text in texts for _, words in text.answered)
    asked = [question for text in texts for question, _ in text.answered] + [
        q for text in texts for q in text.unanswered
    ]
    assert len(set(asked)) == 199  # the size of a wheel is asked for in two texts


async def test_the_sentence_that_answers_is_quoted_and_its_absence_is_told() -> None:
    first, second = await counted(FIRST), await counted(SECOND)
    assert (first["right"], first["wrong"], first["misled"]) == (50, 0, 1)
    assert second["right"] >= 46 and second["wrong"] <= 1 and second["misled"] <= 3


@pytest.mark.parametrize(
    ("sentence", "answers"),
    [
        ("The Aurora sails at nine from berth 7.", True),
        ("The Aurora sails at 9 from berth 7.", True),
        ("The Aurora sails at seven o'clock.", True),
        ("The Aurora sails at nine knots.", False),
        ("The Aurora lies at berth 7.", False),
    ],
)
def test_an_hour_in_words_is_a_time_and_a_speed_is_none(sentence: str, answers: bool) -> None:
    assert holds("time", sentence, "When does the Aurora sail?") is answers
