"""Processes that share one ledger: who lives, and who carries what."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, Protocol

import msgspec

Beat = Literal["alive", "lapsed", "replaced"]
"""What a process learns when it says that it lives: its lease held, or had run out, or its name is another's now."""


class Queue(msgspec.Struct, frozen=True):
    """The table of a projection that says what is to be done, by whom, and for whom.

    `id` and `key` are columns: rows with one key have one owner. `owner` names the process that wrote the row last.
    `due` is a condition with one place, for a time. `open` is a condition that holds until nothing is left to do.
    """

    table: str
    id: str
    key: str
    owner: str
    tenant: str
    due: str
    open: str


class Worker(msgspec.Struct, frozen=True, rename="camel"):
    """A process as others see it. `since` and `until` are milliseconds of the database's clock."""

    name: str
    alive: bool
    since: int
    until: int
    carries: int
    about: dict[str, Any] = {}


class Workers(Protocol):
    """One process's view of the others. Every method may be called on any thread, and waits for the database."""

    name: str

    def start(self, told: Callable[[Beat], None]) -> int:
        """Take the name, and beat from now on; how many had the name up to now, this one counted. `told` hears on the
        beating thread when the lease had run out and when the name is another's."""

    @property
    def is_certain(self) -> bool:
        """Whether the lease lasts now, as far as this process can know by itself: one that stalled cannot."""

    def describe(self, about: dict[str, Any]) -> None:
        """What `listed` tells of this process, from its next beat on."""

    def keep_time(self, set: Callable[[int], None]) -> None:
        """Have `set` called now, and after each beat, with the milliseconds of the database's clock."""

    def leave(self) -> None:
        """Beat no more, and hand over at once what this process carries."""

    def close(self) -> None:
        """Beat no more, without a word: what this process carries is free when its lease has run out."""

    def claim(self, time: int, room: int) -> dict[str, int]:
        """Take up at most `room` keys that are due at `time` and that no living process carries. How many of them each
        process had that is gone."""

    def due(self, time: int, most: int) -> list[str]:
        """The ids that are due at `time` and this process's to carry."""

    def take(self, id: str) -> tuple[str, str | None]:
        """Take up the key of `id` if no living process carries it. The name of the one that carries it and, when it was
        taken, of the one that had it up to now, which is empty when nobody had it."""

    def owner(self, id: str) -> str:
        """The living process that carries `id`; empty when there is none."""

    def kept(self, ids: Collection[str]) -> set[str]:
        """Those of `ids` that are this process's to carry."""

    def tidy(self) -> None:
        """Forget claims on keys of which nothing is open."""

    # Locks

    def hold(self, keys: Collection[str]) -> set[str]:
        """Those of `keys` that are this process's now, until it lets go of them or its life ends. Such a key has a
        slash in it."""

    def let_go(self, keys: Collection[str]) -> None:
        """Give up keys that this process holds. While the database is away, it is done with the next beat."""

    # The fleet

    def living(self) -> list[dict[str, Any]]:
        """What each living process tells of itself."""

    def listed(self) -> list[Worker]:
        """Every process that has not been gone for an hour, by name."""
