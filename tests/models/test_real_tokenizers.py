"""The estimate beside real tokenizers: no text is counted too small, whatever was reported of other texts (C19)."""

from __future__ import annotations

import base64
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.models.joints import joints_of
from forestay.models.most_tokens import most_tokens
from forestay.models.tokens import Estimator

from .any_text import any_text
from .tokenizers import NAMES, ON_BYTES, Counters, counting

pytestmark = pytest.mark.sweep

ROOT = Path(__file__).parents[2]


def texts() -> dict[str, str]:
    """What facts, tools and questions are made of."""
    rng = random.Random(7)
    page = (ROOT / "docs/explanation/relay.md").read_text()
    return {
        "prose": page[:6000],
        "plain": "The harbour master walked along the quay and counted the boats that lay there at night. " * 30,
        "code": (ROOT / "src/forestay/relay/index.py").read_text()[:6000],
        "json": json.dumps([{"id": n, "name": f"user{n}", "value": n * 3.14159} for n in range(120)]),
        "table": "".join(
            f"| {rng.randint(1, 10**9)} | {rng.random():.6f} | 2026-11-{n % 28 + 1:02} |\n" for n in range(90)
        ),
        "digits": "".join(rng.choices("0123456789", k=3000)),
        "hex": rng.randbytes(1500).hex(),
        "base64": base64.b64encode(rng.randbytes(2000)).decode(),
        "letters": "".join(rng.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", k=3000)),
        "marks": "".join(rng.choices("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~\\", k=2000)),
        "white": "".join(rng.choices(" \n\t", k=2000)),
        "control": "".join(chr(rng.randint(1, 31)) for _ in range(1000)),
        "short words": " ".join(rng.choices(["a", "I", "to", "x", "q", "zz"], k=1000)),
        "German": "Die Haltestelle liegt gegenüber der Fußgängerzone, wo früher die Bäckerei Müller stand. " * 30,
        "Russian": "Начальник порта шёл вдоль причала и считал лодки, которые стояли там вечером. " * 30,
        "Greek": "Ο λιμενάρχης περπατούσε στην προκυμαία και μετρούσε τις βάρκες που έμεναν εκεί το βράδυ. " * 30,
        "Arabic": "سار مدير الميناء على طول الرصيف وعد القوارب التي كانت راسية هناك في المساء. " * 30,
        "Chinese": "港务长沿着码头走，数着傍晚停在那里的每一艘船。" * 60,
        "Japanese": "港長は岸壁に沿って歩き、夕方そこに停泊しているすべての船を数えた。" * 60,
        "Hindi": "बंदरगाह प्रमुख घाट के किनारे चला और शाम को वहाँ खड़ी हर नाव को गिना। " * 30,
        "emoji": "".join(chr(rng.randint(0x1F300, 0x1F6FF)) for _ in range(800)),
    }


@pytest.fixture(scope="module")
def counters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counters]:
    with counting(tmp_path_factory.mktemp("tokenizers")) as found:
        yield found


@pytest.fixture(scope="module")
def counted(counters: Counters) -> dict[str, dict[str, int]]:
    return {kind: {name: counters.count(name, text) for name in NAMES} for kind, text in texts().items()}


@pytest.mark.parametrize("kind", texts())
def test_c19_the_estimate_is_not_below_any_real_tokenizer(kind: str, counted: dict[str, dict[str, int]]) -> None:
    estimate = Estimator().count(texts()[kind])
    assert {model: count for model, count in counted[kind].items() if count > estimate} == {}


@pytest.mark.parametrize(("kind", "share"), [("prose", 0.8), ("plain", 0.7), ("code", 0.8), ("German", 0.6)])
def test_c17_the_estimate_leaves_little_of_a_window_empty(
    kind: str, share: float, counted: dict[str, dict[str, int]]
) -> None:
    assert max(counted[kind].values()) > share * Estimator().count(texts()[kind])


@pytest.mark.parametrize("name", NAMES)
@given(text=any_text(surrogates=True, times=5))
@settings(max_examples=300)
def test_b1_b2_b3_no_text_is_more_tokens_than_its_bound(name: str, counters: Counters, text: str) -> None:
    real = counters.count(name, text)
    assert real <= sum(most_tokens(text)) <= Estimator().count(text)


def _beside(counters: Counters, name: str) -> list[tuple[list[str], list[str]]]:
    """For each joint of a vocabulary: characters that end with its left side, and that begin with its right side.

    Those that the estimate holds for cheap come first, because they are the ones that can cost more.
    """
    characters = [chr(code) for code in range(sys.maxunicode) if not 0xD800 <= code < 0xE000]
    every = sorted(characters, key=lambda character: sum(most_tokens(character)) - len(character.encode()))
    ends: dict[bytes, list[str]] = {}
    begins: dict[bytes, list[str]] = {}
    for character in every:
        told = character.encode()
        for size in range(1, len(told) + 1):
            ends.setdefault(told[-size:], []).append(character)
            begins.setdefault(told[:size], []).append(character)
    joints = sorted({joint for token in counters.vocabulary(name) for joint in joints_of(token)})
    return [(ends.get(left, [])[:24], begins.get(right, [])[:24]) for left, right in joints]


@pytest.mark.parametrize("name", ON_BYTES)
def test_b4_no_pair_of_characters_that_a_token_joins_costs_more_than_its_bound(name: str, counters: Counters) -> None:
    """Every joint of the vocabulary, with the characters that are cheapest alone: once, again and again, in words."""
    rng = random.Random(19)
    texts: list[str] = []
    for left, right in _beside(counters, name):
        pairs = [(one, other) for one in left for other in right]
        for one, other in rng.sample(pairs, min(len(pairs), 60)):
            pair, before, behind = one + other, rng.choice(left), rng.choice(right)
            texts += [pair, pair * 9, f"x{pair}y", f" {pair} ", before + pair + behind]
    assert len(texts) > 10_000
    found = [count for start in range(0, len(texts), 5_000) for count in counters.counts(name, texts[start:][:5_000])]
    bounds = [sum(most_tokens(text)) for text in texts]
    over = [item for item in zip(texts, found, bounds, strict=True) if item[1] > item[2]]
    assert over == []


@pytest.mark.parametrize("name", NAMES)
@given(told=st.lists(any_text(), max_size=4), text=any_text(times=5))
@settings(max_examples=150)
def test_c19_reports_of_other_texts_never_bring_a_text_below_its_tokens(
    name: str, counters: Counters, told: list[str], text: str
) -> None:
    estimator = Estimator()
    for earlier in (*told, *told, *told):
        estimator.learn(earlier, counters.count(name, earlier))
    assert counters.count(name, text) <= estimator.count(text)
