"""The index returns what scoring everything would (N1, N2), and the ranking's terms do what they say."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.kernel import Ledger, ManualClock
from forestay.models import stem, words
from forestay.relay.extract import entities, first_entity
from forestay.relay.index import _COMMON, _LOOKED, _WALKED, K1, B, Index
from forestay.relay.ranking import Terms, neighbours, rank

from .conftest import make_relay

corpora = st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=12), min_size=1, max_size=40)


def counted(corpus: list[list[str]]) -> dict[str, dict[int, int]]:
    """By word: how often each fact holds it."""
    held: dict[str, dict[int, int]] = {}
    for number, terms in enumerate(corpus):
        for term, count in Counter(terms).items():
            held.setdefault(term, {})[number] = count
    return held


def by_hand(
    corpus: list[list[str]], query: list[str], held: dict[str, dict[int, int]] | None = None
) -> dict[int, float]:
    held = counted(corpus) if held is None else held
    average = sum(map(len, corpus)) / len(corpus)
    scores: dict[int, float] = {}
    for term in dict.fromkeys(query):
        holding = held.get(term, {})
        idf = math.log(1 + (len(corpus) - len(holding) + 0.5) / (len(holding) + 0.5))
        for number, count in holding.items():
            norm = K1 * (1 - B + B * len(corpus[number]) / average)
            scores[number] = scores.get(number, 0) + idf * (K1 + 1) * count / (count + norm)
    return scores


@given(corpora, st.lists(st.sampled_from("abcdefghijz"), min_size=1, max_size=5), st.integers(1, 50))
@settings(max_examples=200)
def test_n1_search_is_bm25(corpus: list[list[str]], query: list[str], limit: int) -> None:
    index = Index()
    for terms in corpus:
        index.add(terms)
    expected = sorted(by_hand(corpus, query).items(), key=lambda item: (-round(item[1], 9), item[0]))[:limit]
    found = index.search(dict.fromkeys(query, 1.0), limit)
    assert [round(score, 6) for _, score in found] == [round(score, 6) for _, score in expected]
    assert {number for number, score in found if round(score, 9) > round(expected[-1][1], 9)} <= {
        n for n, _ in expected
    }


@given(
    corpora, st.lists(st.sampled_from("abcdefghijz"), min_size=1), st.integers(1, 9), st.frozensets(st.integers(0, 40))
)
def test_n4_what_is_passed_over_takes_no_place(
    corpus: list[list[str]], query: list[str], limit: int, without: frozenset[int]
) -> None:
    index = Index()
    for terms in corpus:
        index.add(terms)
    asked = dict.fromkeys(query, 1.0)
    every = [item for item in index.search(asked, len(corpus)) if item[0] not in without]
    found = index.search(asked, limit, without=without)
    assert [round(score, 9) for _, score in found] == [round(score, 9) for _, score in every[:limit]]
    assert {number for number, _ in found} <= {number for number, _ in every}


def test_n1_skipping_common_words_changes_nothing() -> None:
    rng = random.Random(3)
    corpus = [[rng.choice(["ship", "sea"]) for _ in range(4)] + [f"w{rng.randint(0, 400)}"] for _ in range(4 * _COMMON)]
    index = Index()
    for terms in corpus:
        index.add(terms)
    query = ["w1", "w2", "ship"]
    scores = by_hand(corpus, query)
    rare = {number for number, terms in enumerate(corpus) if "w1" in terms or "w2" in terms}
    expected = sorted((round(scores[number], 6) for number in rare), reverse=True)[:5]
    assert [round(score, 6) for _, score in index.search(dict.fromkeys(query, 1.0), 5)] == expected


def exactly(
    index: Index,
    corpus: list[list[str]],
    every: dict[str, dict[int, int]],
    query: list[str],
    limit: int,
    walked: int = _WALKED,
) -> list[tuple[int, float]]:
    """N1 by scoring everything: where a rarer word is asked for too, common words add to what such words find best."""
    scores = by_hand(corpus, query, every)
    held = sorted(dict.fromkeys(term for term in query if index.frequency(term)), key=index.frequency)
    together = dict(zip(held, accumulate(map(index.frequency, held)), strict=True))
    common = max(_COMMON, len(corpus) >> 4)
    commoner = [term for term in held[1:] if index.frequency(term) > common or together[term] > walked]
    finding = held[: held.index(commoner[0])] if commoner else held
    by_rarer = {number: round(score, 9) for number, score in by_hand(corpus, finding, every).items()}
    if len(finding) == 1:  # the newest of those that hold it
        newest = list(every[finding[0]])[-walked:]
        by_rarer = {number: by_rarer[number] for number in newest}
    least = sorted([0.0, *by_rarer.values()], reverse=True)[: max(limit, _LOOKED)][-1]
    found = [(number, score) for number, score in scores.items() if by_rarer.get(number, -1.0) >= least]
    return sorted(found, key=lambda item: (-round(item[1], 9), item[0]))[:limit]


def test_n1_holds_for_few_and_for_many_common_words_while_facts_are_added_and_moved() -> None:
    rng = random.Random(8)
    vocabulary = [f"w{place}" for place in range(600)]
    weights = [1 / (place + 1) for place in range(600)]
    index, elsewhere, corpus = Index(), Index(), []
    for _ in range(3):
        for _ in range(5 * _COMMON):
            corpus.append(rng.choices(vocabulary, weights, k=rng.randint(3, 20)))
            index.add(corpus[-1])
        every = counted(corpus)
        for _ in range(40):
            query = rng.choices(vocabulary, weights, k=rng.randint(1, 14))
            limit = rng.choice([1, 10, 200])
            found, wanted = index.search(dict.fromkeys(query, 1.0), limit), exactly(index, corpus, every, query, limit)
            assert [round(score, 6) for _, score in found] == [round(score, 6) for _, score in wanted], query
    index.move(range(_COMMON), elsewhere)
    for other in (index, elsewhere):
        assert other.search({"w0": 1.0, "w599": 1.0}, 5) == Index.search(_again(other), {"w0": 1.0, "w599": 1.0}, 5)


@pytest.mark.parametrize("walked", [1, 50, 400, 1500, 20_000])
def test_n1_a_question_walks_over_a_bounded_number_of_postings(monkeypatch: pytest.MonkeyPatch, walked: int) -> None:
    monkeypatch.setattr("forestay.relay.index._WALKED", walked)
    monkeypatch.setattr("forestay.relay.index._FILLED", 100)  # tables stay unfinished for a while
    rng = random.Random(walked)
    vocabulary = [f"w{place}" for place in range(300)]
    weights = [1 / (place + 1) for place in range(300)]
    index, corpus = Index(), []
    for _ in range(3 * _COMMON):
        corpus.append(rng.choices(vocabulary, weights, k=rng.randint(3, 9)))
        index.add(corpus[-1])
    every = counted(corpus)
    for _ in range(30):
        # All postings have different lengths, so that it is plain which word is the rarer one.
        query = [word for word in rng.choices(vocabulary, weights, k=rng.randint(1, 6)) if index.frequency(word)]
        query = list({index.frequency(word): word for word in query}.values())
        found, wanted = index.search(dict.fromkeys(query, 1.0), 20), exactly(index, corpus, every, query, 20, walked)
        assert [round(score, 6) for _, score in found] == [round(score, 6) for _, score in wanted], query


runs_of_facts = st.lists(
    st.tuples(
        st.lists(st.lists(st.sampled_from("abcdef"), max_size=20), min_size=1, max_size=4),
        st.text("abxyz", max_size=5),
        st.sampled_from([1, 20]),
    ),
    max_size=4,
)


@given(runs_of_facts)
@settings(max_examples=50)
def test_a_run_of_facts_is_indexed_like_one_fact_after_the_other(runs: list[tuple[list[list[str]], str, int]]) -> None:
    together, alone = Index(), Index()
    for lines, heading, times in runs:
        facts = [line * times for line in lines]
        together.add_run(facts, list(heading))
        for words_of in facts:
            alone.add(words_of, list(heading))
    assert together._terms == alone._terms
    assert together._lengths == alone._lengths
    assert together._terms.tops == alone._terms.tops
    assert together._total == alone._total


def _again(index: Index) -> Index:
    """The same postings in an index that was never asked anything."""
    fresh = Index()
    fresh._terms, fresh._lengths, fresh._total, fresh._moved = index._terms, index._lengths, index._total, index._moved
    return fresh


def test_n2_a_fact_is_found_as_soon_as_it_is_added() -> None:
    index = Index()
    assert index.search({"ship": 1.0}, 5) == []
    for number in range(50):
        index.add([f"ship{number}", "sea"])
        assert index.search({f"ship{number}": 1.0}, 1)[0][0] == number


def test_a_heading_counts_half() -> None:
    index = Index()
    index.add(["depth", "north"], ["harbour"])
    index.add(["harbour", "north"])
    assert [number for number, _ in index.search({"harbour": 1.0}, 5)] == [1, 0]
    assert index.holders("harbour", [0, 1]) == [1]


def test_words() -> None:
    assert words("The ships' engines were repaired, re-tested.") == [
        "the",
        "ship",
        "engin",
        "were",
        "repair",
        "re",
        "test",
    ]
    assert words("灯塔很高") == ["灯塔", "塔很", "很高"]
    assert words("🚢 go") == ["🚢", "go"]
    assert stem("classes") == stem("class")
    assert stem("running") == stem("run")
    assert stem("v12s") == "v12s"


@given(st.text())
def test_words_of_plain_text_are_those_that_the_pattern_finds(text: str) -> None:
    found = re.findall(r"[^\W_]+", text.lower())
    if text.isascii():
        assert words(text) == [stem(word) for word in found]
    assert words(text + " İß") == [*words(text), *words("İß")]


@given(st.text("aB0@:/. \n-_é"))
def test_the_first_entity_is_the_first_of_all(text: str) -> None:
    assert first_entity(text) == next(entities(text), ("", ""))[1]


async def test_recency_novelty_and_neighbours_move_a_fact(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock).init("x")
    await session.ingest("The Falcon pump moves water. It draws 40 watts. The heron sleeps.", "pumps")
    warm = session.warm
    assert neighbours(warm.facts, 1) == [0]
    found = [item.number for item in rank(warm, "falcon pump")]
    assert found == [0, 1]  # the second is found only because it stands behind the first and `It` joins them
    bare = Terms(graph=False, neighbours=False)
    assert [item.number for item in rank(warm, "falcon pump", terms=bare)] == [0]
    before = rank(warm, "falcon pump")[0].score
    warm.facts[0].shown = 3
    assert rank(warm, "falcon pump")[0].score < before
    warm.facts[0].shown = 0
    warm.windows = 5
    assert rank(warm, "falcon pump")[0].recency < 1


async def test_superseded_facts_count_half_and_quarantined_ones_not(ledger: Ledger, clock: ManualClock) -> None:
    session = await make_relay(ledger, clock).init("x")
    await session.ingest("The basin is deep.\n\nThe basin is wide.", "one")
    session.warm.facts[0].superseded_by = 1
    assert [item.number for item in rank(session.warm, "basin")] == [1, 0]
    session.warm.facts[1].quarantined = True
    assert [item.number for item in rank(session.warm, "basin")] == [0]
