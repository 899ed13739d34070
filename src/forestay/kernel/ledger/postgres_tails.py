"""Remembers the tails of streams for a writer on PostgreSQL, so that it need not ask before each append (P3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy

from forestay.kernel.ledger.records import GENESIS, Tail
from forestay.kernel.ledger.writer import Ticket

_MOST_STREAMS = 8192


class Tails:
    """The tails of a bounded number of streams; streams with other writers are not remembered."""

    def __init__(self) -> None:
        self._known: dict[str, Tail] = {}
        self._others: set[str] = set()
        self._numbers: list[int] = []  # for streams that are new

    def lacks(self, group: Sequence[Ticket]) -> int:
        """Return how many numbers for new streams a guess for `group` still needs."""
        new = {item.stream for ticket in group for item in ticket.appends if item.expect == -1}
        return len(new - self._known.keys()) - len(self._numbers)

    def give(self, numbers: Iterable[int]) -> None:
        self._numbers += numbers

    def guess(self, group: Sequence[Ticket]) -> tuple[dict[str, Tail], frozenset[str]] | None:
        """Return the tails of the streams of `group`, and which streams are new; None when a guess is impossible.

        It is impossible when a stream is unknown, and when an append has no records: its head does not move, so the
        write cannot prove the guess.
        """
        tails: dict[str, Tail] = {}
        new: set[str] = set()
        for ticket in group:
            for item in ticket.appends:
                if not item.drafts:
                    return None
                if item.stream in tails:
                    continue
                known = self._known.get(item.stream)
                if known is not None:
                    tails[item.stream] = copy(known)
                elif item.expect == -1 and item.stream not in self._others:
                    new.add(item.stream)
                    tails[item.stream] = Tail(0, item.stream, -1, GENESIS, 0)
                else:
                    return None
        for name in new:
            tails[name].id = self._numbers.pop()
        return tails, frozenset(new)

    def learn(self, tails: dict[str, Tail]) -> None:
        """Remember tails whose records are on disk."""
        for name, tail in tails.items():
            if name not in self._others:
                self._known[name] = tail
        if len(self._known) > _MOST_STREAMS:
            for name in list(self._known)[: _MOST_STREAMS // 2]:
                del self._known[name]

    def correct(self, guessed: dict[str, Tail], found: dict[str, Tail]) -> None:
        """Forget, after a refused guess, the streams whose tails differ: others write to them."""
        if len(self._others) > _MOST_STREAMS:
            self._others.clear()
        for name, tail in guessed.items():
            if tail.hash != found[name].hash:
                self._known.pop(name, None)
                self._others.add(name)

    def clear(self) -> None:
        self._known.clear()
