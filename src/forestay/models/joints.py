"""Finds where a tokenizer may join parts of two characters, and counts what each of them can cost then (C19).

A tokenizer that works on bytes may have a token with the end of one character and the beginning of the next. The
remaining parts are then tokens of their own, so both characters together can cost more than each alone. The
vocabularies of the measured tokenizers have a few hundred such tokens. `known_pieces.txt` names the joint in each of
them: the bytes on both sides of the one place where a character begins.

- J1  A character that no such token can touch is cut as if it stood alone.
- J2  A token with a whole character in it counts for that character. So a character that loses k bytes to such a token
      costs at most its other bytes, and one more when a token of two parts, or one with a letter, counts for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_CONTINUES = 0b1100_0000, 0b1000_0000  # a mask, and its value in a byte that is not the first of its character


class _Joint(msgspec.Struct, frozen=True):
    """Bytes of one character on the left and of the next on the right; at least one of the characters is cut."""

    left: bytes
    right: bytes

    @property
    def cuts_left(self) -> bool:
        return continues(self.left[0])

    @property
    def cuts_right(self) -> bool:
        return len(self.right) < length(self.right[0])


class Joints:
    """The joints that at least one of the measured tokenizers has."""

    def __init__(self, told: Iterable[tuple[bytes, bytes]]) -> None:
        self._joints: dict[bytes, list[_Joint]] = {}
        for left, right in told:
            self._joints.setdefault(left[-1:] + right[:1], []).append(_Joint(left, right))
        edges = (re.escape(edge[:1]) + b"(?=" + re.escape(edge[1:]) + b")" for edge in self._joints)
        self._edges = re.compile(b"|".join(edges) or b"(?!)")

    def broken(self, text: bytes) -> dict[int, int]:
        """Return, for each character of `text` that a joint can touch, its place and the most tokens that it can be."""
        found: dict[int, int] = {}
        for edge in self._edges.finditer(text):
            at = edge.end()
            for joint in self._joints[text[at - 1 : at + 1]]:
                if text.endswith(joint.left, 0, at) and text.startswith(joint.right, at):
                    for place, most in _touched(text, at, joint):
                        found[place] = max(found.get(place, 0), most)
        return found


def _touched(text: bytes, at: int, joint: _Joint) -> Iterable[tuple[int, int]]:
    """Apply J2 to the characters before and after `at`."""
    if joint.cuts_right:
        counts_here = joint.cuts_left or joint.left.isalpha()
        yield at, length(text[at]) - len(joint.right) + counts_here
    if joint.cuts_left:
        begin = at - 1
        while begin and continues(text[begin]):
            begin -= 1
        yield begin, at - begin - len(joint.left) + joint.right.isalpha()


def joint_bytes(text: str) -> bytes:
    """Return the bytes of `text` as tokenizers get them: a lone surrogate becomes the replacement character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def joints_of(token: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Return the joints in a token that begins or ends inside a character and has more than one part."""
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
    """Return the number of bytes of a character that begins with `first`."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
