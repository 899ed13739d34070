"""Learn a vector for each word from all-MiniLM-L6-v2: `python scripts/word_vectors.py`.

It writes `src/forestay/models/word_vectors.bin`, takes five minutes of one core and needs pip and npm. The vectors are
chosen so that the sum over a text's words comes nearest to the model's vector of the whole text, on 16,000 definitions
and examples of WordNet. A word in none of them keeps the model's vector of the word alone. The words are those of
`related_words.txt`. The weights of the model are under the Apache licence 2.0, WordNet under its own licence, which
allows any use.
"""

from __future__ import annotations

import random
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.alternatives import packages_of  # noqa: E402

from forestay.models import words  # noqa: E402
from forestay.models.word_vectors import DIMENSIONS, MIDDLE, TABLE  # noqa: E402
from scripts import related_words  # noqa: E402

_TEXTS = 16_000
_SHORTEST, _LONGEST = 12, 110  # characters
_CENTRE = 0.7  # the part of the texts' mean that is subtracted
_RARE = 1e-3  # a word with this share of the words counts half
_ALONE = 0.6  # the length of a word's vector before anything is learned
_HOLD = 2.0  # how strongly a vector is held to its start
_ROUNDS = 30
_FINE = 0.15  # the step of a number, in standard deviations
_EXAMPLE = re.compile(r'"([^"]{8,120})"')


def main() -> None:
    import numpy

    packages = packages_of("minilm-0.1.0")
    sys.path.append(str(packages))
    forms = related_words.forms(packages)
    stems = sorted(forms)
    places = {name: place for place, name in enumerate(stems)}
    with related_words.wordnet() as archive:
        texts = _texts(archive)
    alone, wanted = related_words.rows([forms[name] for name in stems]), related_words.rows(texts)
    bags = [[places[word] for word in words(text) if word in places] for text in texts]
    counts = Counter(place for bag in bags for place in bag)
    share = numpy.array([1 + counts[place] for place in range(len(stems))], dtype=numpy.float32)
    share /= share.sum()
    begun = (alone - _CENTRE * alone.mean(0)) * (_ALONE * _RARE / (_RARE + share))[:, None]
    learned = _learned(bags, wanted - _CENTRE * wanted.mean(0), begun)
    table = _narrowed(learned, bags)
    table = numpy.clip(numpy.round(table / table.std() / _FINE), -MIDDLE, MIDDLE) + MIDDLE
    columns = table.astype(numpy.uint8).T
    TABLE.write_bytes(" ".join(stems).encode() + b"\n" + columns.tobytes())


def _texts(archive: tarfile.TarFile) -> list[str]:
    """Return as many definitions as examples of words in lower case, chosen from a seed."""
    definitions: list[str] = []
    examples: list[str] = []
    for kind in related_words.KINDS:
        for lemmas, gloss in related_words.entries(archive, kind):
            if any(lemma[0].islower() for lemma in lemmas):
                examples += _EXAMPLE.findall(gloss)
                plain = re.sub(r';? *"[^"]*"', "", gloss).strip(" ;")
                definitions.append(re.sub(r"^\([^)]*\) *", "", plain))
    definitions = [text for text in definitions if _SHORTEST < len(text) < _LONGEST]
    rng = random.Random(1)
    rng.shuffle(definitions)
    rng.shuffle(examples)
    return definitions[: _TEXTS // 2] + examples[: _TEXTS // 2]


class _Pooling:
    """Turns vectors of words into vectors of texts (the sum over the root of the count), and its transpose."""

    def __init__(self, bags: Sequence[Sequence[int]], size: int) -> None:
        import numpy

        self._np, self._size, self._count = numpy, size, len(bags)
        self._words = numpy.array([place for bag in bags for place in bag])
        lengths = numpy.array([len(bag) for bag in bags])
        self._texts = numpy.repeat(numpy.arange(len(bags)), lengths)
        self._weights = (1 / numpy.sqrt(lengths[self._texts])).astype(numpy.float32)[:, None]
        self._order = numpy.argsort(self._words, kind="stable")

    def texts(self, vectors: Any) -> Any:
        return self._summed(vectors[self._words] * self._weights, self._texts, self._count)

    def words(self, vectors: Any) -> Any:
        order = self._order
        return self._summed((vectors[self._texts] * self._weights)[order], self._words[order], self._size)

    def _summed(self, rows: Any, keys: Any, count: int) -> Any:
        """Return the sum of the rows of each key; the keys are sorted."""
        np = self._np
        begins = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        out = np.zeros((count, rows.shape[1]), dtype=np.float32)
        out[keys[begins]] = np.add.reduceat(rows, begins, axis=0)
        return out


def _learned(bags: Sequence[Sequence[int]], wanted: Any, begun: Any) -> Any:
    """Solve the least squares by conjugate gradients, held to the start."""
    import numpy

    pooling = _Pooling(bags, len(begun))
    moved = numpy.zeros_like(begun)
    left = pooling.words(wanted - pooling.texts(begun))
    step, size = left.copy(), (left * left).sum(0)
    for _ in range(_ROUNDS):
        bent = pooling.words(pooling.texts(step)) + _HOLD * step
        far = size / numpy.maximum((step * bent).sum(0), 1e-12)
        moved += far * step
        left -= far * bent
        before, size = size, (left * left).sum(0)
        step = left + size / numpy.maximum(before, 1e-12) * step
    return begun + moved


def _narrowed(vectors: Any, bags: Sequence[Sequence[int]]) -> Any:
    """Project the vectors on the directions in which texts differ most."""
    import numpy

    texts = _Pooling(bags, len(vectors)).texts(vectors)
    texts /= numpy.maximum(numpy.linalg.norm(texts, axis=1, keepdims=True), 1e-9)
    _, directions = numpy.linalg.eigh(texts.T @ texts)
    return vectors @ directions[:, ::-1][:, :DIMENSIONS]


if __name__ == "__main__":
    main()
