"""Where a tokenizer may join parts of two characters, and what each of them can cost then (C19).

A tokenizer that works on bytes may have a token that holds the end of one character and the beginning of the next. The
parts that are left over then are tokens of their own, so both characters together can cost more than each alone. The
vocabularies of the measured tokenizers hold a few hundred such tokens, and `known_pieces.txt` names the joint in each:
the bytes on both sides of the one place where a character begins.

- J1  A character that no such token can touch is cut as if it stood alone.
- J2  A token with a whole character in it counts for that one. So a character that loses k bytes to such a token costs
      at most the rest of its bytes, and one more where a token of two parts, or one with a letter, counts for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_CONTINUES = 0b1100_0000, 0b1000_0000  # which bits say that a byte is not the first of its character, and how they are


class _Joint(msgspec.Struct, frozen=True):
    """A part or the whole of a character on the left, and of the next one on the right; one of them is a part."""

    left: bytes
    right: bytes

    @property
    def cuts_left(self) -> bool:
        return continues(self.left[0])

    @property
    def cuts_right(self) -> bool:
        return len(self.right) < length(self.right[0])


class Joints:
    """The joints that some tokenizer knows."""

    def __init__(self, told: Iterable[tuple[bytes, bytes]]) -> None:
        self._joints: dict[bytes, list[_Joint]] = {}
        for left, right in told:
            self._joints.setdefault(left[-1:] + right[:1], []).append(_Joint(left, right))
        edges = (re.escape(edge[:1]) + b"(?=" + re.escape(edge[1:]) + b")" for edge in self._joints)
        self._edges = re.compile(b"|".join(edges) or b"(?!)")

    def broken(self, text: bytes) -> dict[int, int]:
        """By the place where it begins: the most tokens of each character of `text` that a joint can touch."""
        found: dict[int, int] = {}
        for edge in self._edges.finditer(text):
            at = edge.end()
            for joint in self._joints[text[at - 1 : at + 1]]:
                if text.endswith(joint.left, 0, at) and text.startswith(joint.right, at):
                    for place, most in _touched(text, at, joint):
                        found[place] = max(found.get(place, 0), most)
        return found


def _touched(text: bytes, at: int, joint: _Joint) -> Iterable[tuple[int, int]]:
    """J2, for the characters before and behind `at`."""
    if joint.cuts_right:
        counts_here = joint.cuts_left or joint.left.isalpha()
        yield at, length(text[at]) - len(joint.right) + counts_here
    if joint.cuts_left:
        begin = at - 1
        while begin and continues(text[begin]):
            begin -= 1
        yield begin, at - begin - len(joint.left) + joint.right.isalpha()


def joint_bytes(text: str) -> bytes:
    """`text` as tokenizers get it: half of a character, which is no text, is the sign for that."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def joints_of(token: bytes) -> Iterable[tuple[bytes, bytes]]:
    """The joints in a token that begins or ends inside a character, where it holds more than one part."""
    parts: list[bytes] = []
    for value in token:
        if continues(value) and parts:
            parts[-1] += bytes([value])
        else:
            parts.append(bytes([value]))
    first, last = parts[0], parts[-1]
    if len(parts) > 1 and continues(first[0]):
        yield first, parts[1]
    if len(parts) > 1 and len(last) < length(last[0]) and not (len(parts) == 2 and continues(first[0])):
        yield parts[-2], last


def continues(value: int) -> bool:
    """Whether a byte is not the first of its character."""
    bits, are = _CONTINUES
    return value & bits == are


def length(first: int) -> int:
    """How many bytes a character has that begins with `first`."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
