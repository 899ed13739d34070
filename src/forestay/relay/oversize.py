"""A task that does not fit into the window: its text is ingested, and what is sent is its beginning and its end."""

from __future__ import annotations

from collections.abc import Callable

_PARAGRAPH = 600
_NOTE = "\n\n[The middle of this input is left out here; what it says about the task stands in the passages above.]\n\n"


def shortened(text: str, room: int, count: Callable[[str], int]) -> str:
    """The first and the last part of `text`, cut at lines or spaces, together at most `room` tokens.

    People put the question first or last; both ends are kept.
    """
    room = max(16, room - count(_NOTE))
    characters = max(32, int(len(text) * room / max(1, count(text)) / 2))
    while characters:
        head, tail = _start(text, characters), _end(text, characters)
        if count(head) + count(tail) <= room:
            return head + _NOTE + tail
        characters = characters * 3 // 4
    return _NOTE.strip()


def question(text: str) -> str:
    """What the task asks, for the ranking: its first and its last paragraph."""
    first, _, _ = text.strip().partition("\n\n")
    _, _, last = text.strip().rpartition("\n\n")
    return f"{first[:_PARAGRAPH]}\n{last[-_PARAGRAPH:]}"


def _start(text: str, limit: int) -> str:
    part = text[:limit]
    for mark in ("\n\n", "\n", " "):
        at = part.rfind(mark, limit // 2)
        if at > 0:
            return part[:at]
    return part


def _end(text: str, limit: int) -> str:
    part = text[-limit:]
    for mark in ("\n\n", "\n", " "):
        at = part.find(mark, 0, limit // 2)
        if at >= 0:
            return part[at + len(mark) :]
    return part
