"""Retrieval on the labelled questions: never below plain BM25, and each term of the score pays for itself."""

from __future__ import annotations

import pytest
from benchmarks.retrieval import CUTS, KINDS, Question, build, ours, plain_bm25, recall

from holdfast.relay.rank import Terms
from holdfast.relay.warm import Warm


@pytest.fixture(scope="module")
def made() -> tuple[Warm, list[Question]]:
    return build()


def test_the_set_is_what_the_page_says(made: tuple[Warm, list[Question]]) -> None:
    _, questions = made
    assert {kind for kind, _, _ in questions} == set(KINDS)
    assert len(questions) == 440
    assert len({text for _, text, _ in questions}) == 440


def test_recall_is_never_below_plain_bm25(made: tuple[Warm, list[Question]]) -> None:
    warm, questions = made
    mine, theirs = recall(ours(warm), questions), recall(plain_bm25(warm), questions)
    for cut in CUTS:
        assert mine["all", cut] > theirs["all", cut]
        for kind in KINDS:
            assert mine[kind, cut] >= theirs[kind, cut], (kind, cut)


@pytest.mark.parametrize(("term", "kind"), [("graph", "pronoun"), ("recency", "newest"), ("novelty", "unseen")])
def test_each_term_pays_for_itself(made: tuple[Warm, list[Question]], term: str, kind: str) -> None:
    warm, questions = made
    full, without = recall(ours(warm), questions), recall(ours(warm, Terms(**{term: False})), questions)
    assert full["all", 5] >= without["all", 5]
    assert full[kind, 5] >= without[kind, 5]
    assert sum(full[kind, cut] for cut in CUTS) > sum(without[kind, cut] for cut in CUTS)
