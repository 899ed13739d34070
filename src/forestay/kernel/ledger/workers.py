"""Processes that share one ledger: which ones live, and which one owns each key."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, Protocol

import msgspec

Beat = Literal["alive", "lapsed", "replaced"]
"""The result of renewing a lease: it was still valid, it had expired, or another process has the name now."""


class Queue(msgspec.Struct, frozen=True):
    """A projection's table that is a queue of work: each row has an owner and a tenant.

    `id` and `key` are columns: rows with one key have one owner. `owner` names the process that wrote the row last.
    `due` is a condition with one placeholder, for a time. `open` is a condition that is true while work is left.
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
        """Take the name and renew the lease from now on; return how many processes had the name, this one included.

        The renewing thread calls `told` when the lease had expired, and when another process took the name.
        """

    @property
    def is_certain(self) -> bool:
        """Whether the lease is certainly valid now, by this process's own clock."""

    def describe(self, about: dict[str, Any]) -> None:
        """Set what `listed` shows of this process, from its next beat on."""

    def keep_time(self, set: Callable[[int], None]) -> None:
        """Call `set` now, and after each beat, with the milliseconds of the database's clock."""

    def leave(self) -> None:
        """Stop renewing the lease, and free this process's keys at once."""

    def close(self) -> None:
        """Stop renewing the lease, silently: this process's keys are free when the lease expires."""

    def claim(self, time: int, room: int) -> dict[str, int]:
        """Claim at most `room` keys that are due at `time` and have no living owner.

        Return how many of them each dead process had.
        """

    def due(self, time: int, most: int) -> list[str]:
        """Return the ids that are due at `time` and that this process owns."""

    def take(self, id: str) -> tuple[str, str | None]:
        """Claim the key of `id` if it has no living owner; return the owner's name.

        If this call claimed it, return the former owner too, which is empty when there was none.
        """

    def owner(self, id: str) -> str:
        """Return the living process that owns `id`; empty when there is none."""

    def kept(self, ids: Collection[str]) -> set[str]:
        """Return those of `ids` that this process owns."""

    def tidy(self) -> None:
        """Delete claims on keys without open rows."""

    # Locks

    def hold(self, keys: Collection[str]) -> set[str]:
        """Lock `keys` until this process releases them or ends; return those that it holds now.

        Such a key contains a slash.
        """

    def let_go(self, keys: Collection[str]) -> None:
        """Release keys that this process holds; if the database is away, the next beat does it."""

    # The fleet

    def living(self) -> list[dict[str, Any]]:
        """Return what each living process described itself with."""

    def listed(self) -> list[Worker]:
        """Return every process that lived within the last hour, in order of name."""
