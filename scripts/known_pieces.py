"""Measure words, letters, characters and their joints with six real tokenizers: `python scripts/known_pieces.py`.

It writes `src/forestay/models/known_pieces.txt`, which `most_tokens.py` reads. It takes some minutes and needs npm;
`--words` and `--joints` measure only these and keep the rest. The words come from our own texts: the thesaurus and the
list of everyday words with their inflections, a list of German words, the documentation, the sources.
"""

from __future__ import annotations

import argparse
import re
import string
import sys
import tempfile
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.models.tokenizers import NAMES, ON_BYTES, Counters, counting  # noqa: E402

from forestay.models.joints import continues, joints_of, length  # noqa: E402
from forestay.models.most_tokens import most_of_letters, read_pairs  # noqa: E402

TABLE = ROOT / "src/forestay/models/known_pieces.txt"
LISTS = ("src/forestay/models/thesaurus.txt", "scripts/everyday_words.txt")
TEXTS = (*LISTS, "scripts/german_words.txt", "README.md", "CHANGELOG.md", "docs/**/*.md", "src/**/*.py")
_ROOM = 215_000  # letters of all words with a space each; the rarest words are left out
_BATCH = 5_000
CHANGING = ("claude",)  # tokenizers that read a text in the form NFKC
_WORD = re.compile(r"[A-Za-z]{2,}")
_NO_WORD = 20  # a word of this many letters is an alphabet, or joined names
_SHORT_VOWEL = re.compile(r"[^aeiou]*[aeiou][^aeiouwxy]")  # such a word doubles its last letter: stop, stopped
_BEFORE = (
    *string.punctuation,
    "\n",
    "\t",
    "\r",
    "\x01",
    "7",
)  # the characters before a word, other than spaces and letters
_BEFORE_CHARACTERS = (" ", "a", ".", "\n")  # a tokenizer may join these with the first byte after them
_LAST_CHARACTER = 0x30000
_HEAD = "# Written by scripts/known_pieces.py: what six real tokenizers make of words, letters and characters.\n"


def most(counters: Counters, texts: Sequence[str], names: Sequence[str] = NAMES) -> list[int]:
    """Return for each text the most tokens that one of the six gives it."""
    found: list[int] = []
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        found += map(max, *(counters.counts(name, batch) for name in names))
    return found


def pairs(counters: Counters) -> Iterator[str]:
    letters = string.ascii_letters
    texts = [first + second for first in letters for second in letters]
    joined = {text for text, count in zip(texts, most(counters, texts), strict=True) if count == 1}
    for first in letters:
        yield f"pairs {first} {''.join(second for second in letters if first + second in joined)}"
    alone = most(counters, [f" {letter}" for letter in letters])
    assert set(alone) == {1}, "each letter is one token with the space before it"


def words(counters: Counters, joined: Container[str]) -> Iterator[str]:
    """Yield the table's lines of words, grouped by their cost after a space and after anything else."""
    met = our_words()
    told = [f" {word}" for word in met]
    spaced = dict(zip(met, most(counters, told), strict=True))
    saved = {word: most_of_letters(f" {word}", joined) - spaced[word] for word in met}
    chosen = _frequent([word for word in met if saved[word] > 0], met, saved)
    bare = dict.fromkeys(chosen, 1)
    for before in _BEFORE:
        alone = 0 if before == "\n" else 1
        texts = [f"\n{before}{word}" if alone else f"\n{word}" for word in chosen]
        for word, count in zip(chosen, most(counters, texts), strict=True):
            bare[word] = max(bare[word], count - 1 - alone)
    kinds = sorted({(spaced[word], bare[word]) for word in chosen})
    for kind in kinds:
        of_kind = sorted(word for word in chosen if (spaced[word], bare[word]) == kind)
        yield from _lines(f"words {kind[0]} {kind[1]}", of_kind)


def our_words() -> Counter[str]:
    """Return the words of our texts with their frequencies; their other forms count 0 times."""
    met = Counter(word for pattern in TEXTS for word in _read(pattern))
    forms = [word for word in met if word.islower() or word.isupper() or word.istitle()]  # no camelCase
    forms += (form for pattern in LISTS for word in _read(pattern) for form in inflections(word))
    for form in forms:
        for written in (form.lower(), form.capitalize()):
            met[written] += 0
    return met


def _read(pattern: str) -> Iterator[str]:
    for place in sorted(ROOT.glob(pattern)):
        yield from (word for word in _WORD.findall(place.read_text("utf-8")) if len(word) < _NO_WORD)


def inflections(word: str) -> Iterator[str]:
    """Yield a word's forms as a verb, a noun and an adjective by rule, whatever the word is."""
    stem = word.removesuffix("e")
    if re.search("[^aeiou]y$", word):
        stem = f"{word[:-1]}i"
        yield from (f"{stem}es", f"{stem}ed", f"{word}ing", f"{stem}er", f"{stem}ly")
        return
    if _SHORT_VOWEL.fullmatch(word):
        stem = word + word[-1]
    yield word + ("es" if re.search("([sxz]|[cs]h)$", word) else "s")
    yield from (f"{stem}ed", f"{stem}ing", f"{stem}er")
    yield f"{stem}y" if re.search("[^aeiou]le$", word) else f"{word}ly"


def _frequent(found: Sequence[str], met: Counter[str], saved: dict[str, int]) -> list[str]:
    """Return the most frequent words of `found` that fit; of equally frequent ones, those that save most."""
    of_any_case = Counter[str]()
    for word, times in met.items():
        of_any_case[word.lower()] += times
    room, chosen = _ROOM, []
    for word in sorted(found, key=lambda word: (-met[word], -of_any_case[word.lower()], -saved[word], word)):
        room -= len(word) + 1
        if room < 0:
            break
        chosen.append(word)
    return chosen


def characters(counters: Counters) -> Iterator[str]:
    """Yield the table's lines of characters, by their cost in the tokenizers that do not change them first."""
    every = [chr(code) for code in range(0x80, _LAST_CHARACTER) if not 0xD800 <= code < 0xE000]
    costs = dict(zip(every, _cost(counters, every), strict=True))
    cheap = [text for text in every if costs[text] < len(text.encode())]
    for before in _BEFORE_CHARACTERS:
        for text, count in zip(cheap, _cost(counters, cheap, before), strict=True):
            costs[text] = max(costs[text], count)
    assert all(cost <= len(text.encode()) for text, cost in costs.items()), "a character has at most one token per byte"
    for wanted in (1, 2):
        found = [ord(text) for text, cost in costs.items() if cost == wanted < len(text.encode())]
        yield from _lines(f"characters {wanted}", _ranges(found))


def _cost(counters: Counters, texts: Sequence[str], before: str = "") -> Iterator[int]:
    """Yield the cost of characters after `before`; a tokenizer that changes a character is left out for it."""
    alone = [name for name in NAMES if name not in CHANGING]
    told = [before + text for text in texts]
    for text, every, some in zip(texts, most(counters, told), most(counters, told, alone), strict=True):
        yield (every if unicodedata.is_normalized("NFKC", text) else some) - len(before)


def joints(counters: Counters) -> Iterator[str]:
    """Yield the table's lines of joints: a token has a part of one character and a part or all of the next one.

    It leaves out joints that cost nothing: those after a space, which `characters` has measured, and a character of two
    bytes that loses one of them to a token which counts for its neighbour.
    """
    tokens = (token for name in ON_BYTES for token in counters.vocabulary(name))
    found = {joint for token in tokens for joint in joints_of(token)}
    told = sorted((left, right) for left, right in found if left != b" " and _can_cost(left, right))
    yield from _lines("joints", [f"{left.hex()}.{right.hex()}" for left, right in told])


def _can_cost(left: bytes, right: bytes) -> bool:
    return continues(left[0]) or left.isalpha() or length(right[0]) > 2


def _ranges(codes: Sequence[int]) -> Iterator[str]:
    found: list[list[int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    for low, high in found:
        yield f"{low:x}" if low == high else f"{low:x}-{high:x}"


def _lines(head: str, items: Iterable[str]) -> Iterator[str]:
    for line in textwrap.wrap(" ".join(items), 110, break_long_words=False, break_on_hyphens=False):
        yield f"{head} {line}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", action="store_true", help="measure only the words")
    parser.add_argument("--joints", action="store_true", help="measure only the joints")
    only = {name for name, wanted in vars(parser.parse_args()).items() if wanted}
    kept = [line for line in TABLE.read_text("ascii").splitlines() if only and line.split()[0] not in only]
    with tempfile.TemporaryDirectory() as folder, counting(Path(folder)) as counters:
        letters = [line for line in kept if line.startswith("pairs ")] or [*pairs(counters)]
        wide = [line for line in kept if line.startswith("characters ")] or [*characters(counters)]
        known = [line for line in kept if line.startswith("words ")] or [*words(counters, read_pairs(letters))]
        edges = [line for line in kept if line.startswith("joints ")] or [*joints(counters)]
        found = [*letters, *known, *wide, *edges]
    TABLE.write_text(_HEAD + "\n".join(found) + "\n", "ascii")
    print(f"{TABLE.relative_to(ROOT)}: {len(found)} lines")


if __name__ == "__main__":
    main()
