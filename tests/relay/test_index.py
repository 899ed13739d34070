"""The index returns what scoring everything would (N1, N2), and the ranking's terms do what they say."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from forestay.kernel import Ledger, ManualClock
from forestay.models import stem, words
from forestay.relay.index import _COMMON, _LOOKED, K1, B, Index
from forestay.relay.ranking import Terms, neighbours, rank

from .conftest import make_relay

corpora = st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=12), min_size=1, max_size=40)


def by_hand(corpus: list[list[str]], query: list[str]) -> dict[int, float]:
    average = sum(map(len, corpus)) / len(corpus)
    scores: dict[int, float] = {}
    for term in set(query):
        holding = [number for number, terms in enumerate(corpus) if term in terms]
        idf = math.log(1 + (len(corpus) - len(holding) + 0.5) / (len(holding) + 0.5))
        for number in holding:
            count = corpus[number].count(term)
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


def exactly(index: Index, corpus: list[list[str]], query: list[str], limit: int) -> list[tuple[int, float]]:
    """N1 by scoring everything: where a rarer word is asked for too, common words add to what such words find best."""
    scores = by_hand(corpus, query)
    held = sorted({term for term in query if index.frequency(term)}, key=index.frequency)
    finding = {term for term in held if index.frequency(term) <= max(_COMMON, len(corpus) >> 4)} | set(held[:1])
    by_rarer = {number: round(score, 9) for number, score in by_hand(corpus, list(finding)).items()}
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
        for _ in range(40):
            query = rng.choices(vocabulary, weights, k=rng.randint(1, 14))
            limit = rng.choice([1, 10, 200])
            found, wanted = index.search(dict.fromkeys(query, 1.0), limit), exactly(index, corpus, query, limit)
            assert [round(score, 6) for _, score in found] == [round(score, 6) for _, score in wanted], query
    index.move(range(_COMMON), elsewhere)
    for other in (index, elsewhere):
        assert other.search({"w0": 1.0, "w599": 1.0}, 5) == Index.search(_again(other), {"w0": 1.0, "w599": 1.0}, 5)


def _again(index: Index) -> Index:
    """The same postings in an index that was never asked anything."""
    fresh = Index()
    fresh._terms, fresh._lengths, fresh._total, fresh._moved = index._terms, index._lengths, index._total, index._moved
    fresh._tops = index._tops
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
