"""What an extension wants to know of a person, and how a run asks it."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

A = TypeVar("A")


class Inquiry(Protocol[A]):
    """A question of an extension as an interrupt of kind `approval`; `A` is its answer."""

    extension: str
    name: str
    """Tells the inquiries of one piece of work apart; the same question has the same name in every life."""

    @property
    def schema(self) -> dict[str, Any]:
        """What a resume value must fit."""

    def shown(self, key: str, about: dict[str, Any]) -> dict[str, Any]:
        """The data of the interrupt with this key."""

    def read(self, value: Any, now_ms: int) -> A:
        """The answer that a resume value means."""

    def lets_change(self, answer: A) -> bool:
        """Whether the extension may change something with this answer."""
        return False
