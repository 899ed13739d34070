"""What is fuzzed: a function of bytes that may refuse them with a Problem and must do nothing else but hold."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType

import msgspec

from forestay.kernel import Problem

SLOW_SECONDS = 0.1
"""Processor time that one input may take."""


class Target(msgspec.Struct, frozen=True):
    """`run` gets any bytes. What it raises beside a Problem is a defect, an assertion of its own included."""

    name: str
    run: Callable[[bytes], object]
    modules: tuple[str, ...]
    """Whose functions it is meant to reach; what `coverage` counts."""
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...]
    """What its language is made of; mutations put them in."""
    longest: int = 4096

    def try_on(self, data: bytes) -> None:
        try:
            self.run(data)
        except Problem as problem:
            assert problem.message, "a Problem says what is wrong"

    def holds_on(self, data: bytes) -> bool:
        try:
            self.try_on(data)
        except Exception:
            return False
        return True

    def measured(self) -> list[ModuleType]:
        return [importlib.import_module(name) for name in self.modules]


TARGETS: dict[str, Target] = {}
Run = Callable[[bytes], object]


def target(modules: Iterable[str], seeds: Iterable[bytes], words: Iterable[bytes] = ()) -> Callable[[Run], Run]:
    """Register a function as the target of its name."""

    def register(run: Run) -> Run:
        name = run.__name__.replace("_", "-")
        names = tuple(f"forestay.{module}" for module in modules)
        TARGETS[name] = Target(name, run, names, tuple(seeds), tuple(words))
        return run

    return register


def text_of(data: bytes) -> str:
    """Any bytes as a text that JSON could have carried."""
    return data.decode("utf-8", "replace")


def lines_of(data: bytes, count: int) -> list[str]:
    """The first lines of the input as so many texts; the last one has the rest."""
    parts = text_of(data).split("\n", count - 1)
    return [*parts, *[""] * (count - len(parts))]
