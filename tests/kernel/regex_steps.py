"""Counts the work of a backtracking search, so that a test can tell linear from quadratic without a clock.

The engine of `re` has no counter. This one walks the same parse tree in the same order (greedy, lazy, possessive,
leftmost first) and counts each comparison and each place to which it goes back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_parser: Any = re._parser  # type: ignore[attr-defined]
_constants: Any = re._constants  # type: ignore[attr-defined]
Next = Callable[[int], int | None]


class Steps:
    """One pattern, one text, and the steps that were taken so far."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self.text = text
        self.count = 0
        self._ignore = bool(pattern.flags & re.IGNORECASE)
        self._tree = list(_parser.parse(pattern.pattern, pattern.flags))

    def search_all(self) -> int:
        """The steps of `pattern.sub` over the whole text."""
        at = 0
        while at <= len(self.text):
            end = self.match(at)
            at = end if end is not None and end > at else at + 1
        return self.count

    def match(self, at: int) -> int | None:
        """Where a match that begins at `at` ends."""
        return self._sequence(self._tree, 0, at, lambda place: place)

    def _sequence(self, items: list[Any], index: int, at: int, after: Next) -> int | None:
        while index < len(items):
            operator, argument = items[index]
            if str(operator) not in ("LITERAL", "NOT_LITERAL", "IN", "ANY", "AT"):
                return self._compound(str(operator), argument, at, self._rest(items, index + 1, after))
            self.count += 1
            if str(operator) == "AT":
                if not self._at(str(argument), at):
                    return None
            elif at < len(self.text) and self._one(str(operator), argument, self.text[at]):
                at += 1
            else:
                return None
            index += 1
        return after(at)

    def _rest(self, items: list[Any], index: int, after: Next) -> Next:
        return lambda place: self._sequence(items, index, place, after)

    def _compound(self, operator: str, argument: Any, at: int, after: Next) -> int | None:
        if operator in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, body = argument
            items = list(body)
            most = 10**9 if high is _constants.MAXREPEAT else int(high)
            if len(items) == 1 and str(items[0][0]) in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
                return self._run(operator, items[0], int(low), most, at, after)
            if operator == "POSSESSIVE_REPEAT":
                return self._possessive(items, int(low), most, at, after)
            return self._repeat(operator == "MAX_REPEAT", items, int(low), most, at, after)
        if operator == "SUBPATTERN":
            return self._sequence(list(argument[3]), 0, at, after)
        if operator == "BRANCH":
            for branch in argument[1]:
                found = self._sequence(list(branch), 0, at, after)
                if found is not None:
                    return found
            return None
        if operator in ("ASSERT", "ASSERT_NOT"):
            direction, body = argument
            start = at if direction > 0 else at - 1  # every lookbehind here is one character wide
            held = start >= 0 and self._sequence(list(body), 0, start, lambda place: place) is not None
            return after(at) if held == (operator == "ASSERT") else None
        raise NotImplementedError(operator)

    def _run(self, operator: str, item: Any, low: int, most: int, at: int, after: Next) -> int | None:
        """A repeat of one character: as far as it goes, then back one by one; lazy the other way round."""
        kind, argument, end = str(item[0]), item[1], at
        limit = min(len(self.text), at + most)
        if operator == "MIN_REPEAT":
            while True:
                if end - at >= low:
                    found = after(end)
                    if found is not None:
                        return found
                self.count += 1
                if end >= limit or not self._one(kind, argument, self.text[end]):
                    return None
                end += 1
        while end < limit and self._one(kind, argument, self.text[end]):
            end += 1
            self.count += 1
        if operator == "POSSESSIVE_REPEAT":
            return after(end) if end - at >= low else None
        while end - at >= low:
            self.count += 1
            found = after(end)
            if found is not None:
                return found
            end -= 1
        return None

    def _possessive(self, items: list[Any], low: int, most: int, at: int, after: Next) -> int | None:
        rounds = 0
        while rounds < most:
            end = self._sequence(items, 0, at, lambda place: place)
            if end is None or end == at:
                break
            at, rounds = end, rounds + 1
        return after(at) if rounds >= low else None

    def _repeat(self, greedy: bool, items: list[Any], low: int, most: int, at: int, after: Next) -> int | None:
        def again(place: int, rounds: int) -> int | None:
            self.count += 1
            if not greedy and rounds >= low:
                found = after(place)
                if found is not None:
                    return found
            if rounds < most:
                found = self._sequence(items, 0, place, lambda end: again(end, rounds + 1) if end > place else None)
                if found is not None:
                    return found
            return after(place) if greedy and rounds >= low else None

        return again(at, 0)

    def _at(self, where: str, at: int) -> bool:
        if where == "AT_END":
            return at == len(self.text) or (at == len(self.text) - 1 and self.text[at] == "\n")
        if where == "AT_BEGINNING":
            return at == 0
        assert where == "AT_BOUNDARY", where
        return _is_word(self.text[at - 1 : at]) != _is_word(self.text[at : at + 1])

    def _one(self, kind: str, argument: Any, character: str) -> bool:
        forms = {character, character.lower(), character.upper()} if self._ignore else {character}
        codes = {ord(form) for form in forms if len(form) == 1}
        if kind == "LITERAL":
            return argument in codes
        if kind == "NOT_LITERAL":
            return argument not in codes
        return kind == "ANY" or _in_set(argument, codes, character)


def _in_set(items: list[Any], codes: set[int], character: str) -> bool:
    negated, held = False, False
    for operator, argument in items:
        name = str(operator)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            held = held or argument in codes
        elif name == "RANGE":
            held = held or any(argument[0] <= code <= argument[1] for code in codes)
        else:
            held = held or _category(str(argument), character)
    return held != negated


def _category(name: str, character: str) -> bool:
    kind = name.removeprefix("CATEGORY_").removeprefix("NOT_")
    held = {"SPACE": character.isspace(), "WORD": _is_word(character), "DIGIT": character.isdecimal()}[kind]
    return held != name.startswith("CATEGORY_NOT_")


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def steps(pattern: re.Pattern[str], text: str) -> int:
    return Steps(pattern, text).search_all()


def match_steps(pattern: re.Pattern[str], text: str) -> int:
    """The same of `pattern.match`."""
    counter = Steps(pattern, text)
    counter.match(0)
    return counter.count
