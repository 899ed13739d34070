"""Counts the most tokens that a text can be, without knowing the tokenizer that will cut it (C19).

`known_pieces.txt` holds what `scripts/known_pieces.py` measured with six real tokenizers: words of our own texts that
all of them cut into fewer tokens than B2 says, pairs of letters that all of them join, characters beyond ASCII that are
one or two tokens for all, and the places where one of them joins parts of two characters.

- B1  A word of the table, with the space before it, counts as the most that one of the six gives it. No token has the
      end of one word and the beginning of the next, so words count one by one.
- B2  Other letters: a tokenizer that joins pairs never leaves two single letters side by side that it could join. So
      n letters with u pairs that some tokenizer does not join are at most (2n + 1 + u) / 3 tokens. (k single letters
      and m longer tokens: k + 2m <= n and k <= m + 1 + u.) A space before the letters counts as one of them.
- B3  Everything else: a byte of UTF-8 is at most one token, and a character of the table has the table's count. Some
      tokenizers first change a text to Unicode's form NFKC, so the larger of both forms counts.
- B4  A character that a tokenizer may cut in two, to join a part of it with its neighbour, counts as the most that its
      remaining part can be (`joints.py`).

B2 and B3 hold for every tokenizer that works on bytes or characters and joins these pairs, whatever its vocabulary.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable
from functools import cache
from importlib import resources
from itertools import pairwise

import msgspec

from forestay.models.joints import Joints, joint_bytes, length

_TABLE = "known_pieces.txt"
_KEPT = 100_000
_RUN = re.compile(r" ?[A-Za-z]+")
# Letters next to a character beyond ASCII are part of a word that the table does not have, and an apostrophe takes
# letters from the text after it (`'s`).
_TOUCHING = re.compile(r"(?<=[^\x00-\x7f])[A-Za-z]+|(?<=')[A-Za-z]+|(?<![A-Za-z]) ?[A-Za-z]+(?=[^\x00-\x7f])")
_SPACES = re.compile(r" {3,}")
_JOINED_SPACES = 8  # every known tokenizer has longer runs of spaces as one token


class _Pieces(msgspec.Struct, frozen=True):
    """The table: costs of words, alone and after a space, pairs of letters, costs of characters, joints."""

    words: dict[str, int]
    pairs: frozenset[str]
    characters: dict[str, int]
    joints: Joints


class _Runs(dict[str, int]):
    """A cache of the costs of runs of letters."""

    def __missing__(self, run: str) -> int:
        if len(self) >= _KEPT:
            self.clear()
        result = self[run] = min(_letters(run), _pieces().words.get(run, len(run)))
        return result


class _Characters(dict[str, int]):
    """A cache of the costs of characters."""

    def __missing__(self, character: str) -> int:
        known = _pieces().characters.get(character)
        result = self[character] = known or len(character.encode("utf-8", "surrogatepass"))
        return result


_runs, _characters = _Runs(), _Characters()


def most_tokens(text: str) -> tuple[int, int]:
    """Return the most tokens of the ASCII part of `text`, and of the rest."""
    if text.isascii():
        return _ascii(text, len(text)), 0
    found = _parts(text)
    if unicodedata.is_normalized("NFKC", text):
        return found
    other = _parts(unicodedata.normalize("NFKC", text))
    return max(found[0], other[0]), max(found[1], other[1])


def _parts(text: str) -> tuple[int, int]:
    wide = [character for character in text if character > "\x7f"]
    return _ascii(text, len(text) - len(wide)), sum(map(_characters.__getitem__, wide)) + _broken(text)


def _broken(text: str) -> int:
    """Return how many more tokens the characters of `text` can be together than each alone (B4)."""
    data = joint_bytes(text)
    more = 0
    for at, most in _pieces().joints.broken(data).items():
        more += max(0, most - _characters[data[at : at + length(data[at])].decode()])
    return more


def _ascii(text: str, plain: int) -> int:
    """Count the tokens of the `plain` ASCII characters in `text`: runs of letters by the table, eight spaces as one
    token, each other character as one."""
    runs = _RUN.findall(text)
    others = plain - sum(map(len, runs))
    joined = sum(len(run) - 2 - (len(run) - 1) // _JOINED_SPACES for run in _SPACES.findall(text))
    unknown = 0
    if plain < len(text) or "'" in text:
        unknown = sum(_letters(run) - _runs[run] for run in _TOUCHING.findall(text))
    return sum(map(_runs.__getitem__, runs)) + unknown + others - joined


def _letters(run: str) -> int:
    return most_of_letters(run, _pieces().pairs)


def most_of_letters(run: str, pairs: Container[str]) -> int:
    """Return the most tokens of letters that are no word of the table, when every tokenizer joins `pairs` (B2)."""
    apart = sum(pair not in pairs for pair in map("".join, pairwise(run)))
    return (2 * len(run) + 1 + apart) // 3


def read_pairs(lines: Iterable[str]) -> set[str]:
    """Read pairs from lines of the table: `pairs a bc` means ab and ac, and that `a` joins a space before it."""
    found: set[str] = set()
    for line in lines:
        _, first, seconds = line.split(" ")
        found |= {first + second for second in seconds} | {f" {first}"}
    return found


@cache
def _pieces() -> _Pieces:
    """Return the table; read for the first text that is counted."""
    words: dict[str, int] = {}
    pairs: set[str] = set()
    characters: dict[str, int] = {}
    joints: list[tuple[bytes, bytes]] = []
    for line in resources.files("forestay.models").joinpath(_TABLE).read_text("ascii").splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "words":
            spaced, bare, *found = rest.split(" ")
            words.update((f" {word}", int(spaced)) for word in found)
            words.update((word, int(bare)) for word in found)
        elif kind == "pairs":
            pairs |= read_pairs([line])
        elif kind == "characters":
            cost, *ranges = rest.split(" ")
            for found_range in ranges:
                low, _, high = found_range.partition("-")
                characters.update((chr(code), int(cost)) for code in range(int(low, 16), int(high or low, 16) + 1))
        elif kind == "joints":
            sides = (joint.partition(".") for joint in rest.split(" "))
            joints += ((bytes.fromhex(left), bytes.fromhex(right)) for left, _, right in sides)
    return _Pieces(words, frozenset(pairs), characters, Joints(joints))
