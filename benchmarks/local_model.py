"""The local model on 200 questions; the text answers only half of them (`benchmarks/local_questions.py`).

The model's rules were written with the set `first` in view, and without a look at `second`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from benchmarks.local_questions import FIRST, SECOND, Text
from forestay import models
from forestay.models import Message

Row = tuple[str, str, str]
_NOTHING = "nothing in it answers this"


def run() -> list[Row]:
    return [row for name, texts in (("first", FIRST), ("second", SECOND)) for row in _rows(name, texts)]


def _rows(name: str, texts: Sequence[Text]) -> list[Row]:
    found = asyncio.run(counted(texts))
    with_answer = found["right"] + found["wrong"] + found["silent"]
    without = found["said so"] + found["misled"]
    beside = f"another sentence {found['wrong']}, nothing {found['silent']}"
    return [
        (f"local model: the sentence that answers, {name} set", f"{found['right']} of {with_answer}", beside),
        (f"local model: says that nothing answers, {name} set", f"{found['said so']} of {without}", ""),
    ]


async def counted(texts: Sequence[Text]) -> Counter[str]:
    """Count the model's answers; it gets the text before the question, as from an agent."""
    found: Counter[str] = Counter()
    for text in texts:
        for question, words in text.answered:
            said = await _answer(text, question)
            found["right" if words in said else "silent" if _NOTHING in said else "wrong"] += 1
        for question in text.unanswered:
            found["said so" if _NOTHING in await _answer(text, question) else "misled"] += 1
    return found


async def _answer(text: Text, question: str) -> str:
    content = f"[source: {text.name}]\n{text.text}\n\n{question}"
    return (await models.fold(models.open("local").stream([Message("user", content)]))).text
