"""Drift: what was declared, what the text shows, and what was seen at run time, beside one another (Pi §2B, §3.3)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Drift(msgspec.Struct, frozen=True):
    """Where the three do not agree; each list is sorted."""

    undeclared: tuple[str, ...]  # needed by the text, not declared
    unused: tuple[str, ...]  # declared, not needed by the text
    surprising: tuple[str, ...]  # seen at run time, neither declared nor in the text

    def __bool__(self) -> bool:
        return bool(self.undeclared or self.unused or self.surprising)


def drift(declared: Iterable[str] | None, inferred: Iterable[str], observed: Iterable[str] = ()) -> Drift:
    """Compare; an extension that declares nothing at all has no declaration to drift from."""
    shown, seen = set(inferred), set(observed)
    if declared is None:
        return Drift((), (), tuple(sorted(seen - shown)))
    said = set(declared)
    return Drift(tuple(sorted(shown - said)), tuple(sorted(said - shown)), tuple(sorted(seen - shown - said)))
