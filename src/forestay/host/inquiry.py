"""A question of an extension to a person, and how a run asks it."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

A = TypeVar("A")


class Inquiry(Protocol[A]):
    """A question of an extension as an interrupt of kind `approval`; `A` is its answer."""

    extension: str
    name: str
    """Tells the inquiries of one piece of work apart. A question keeps its name after a restart of the process."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of a resume value."""

    def shown(self, key: str, about: dict[str, Any]) -> dict[str, Any]:
        """Return the data of the interrupt with this key."""

    def read(self, value: Any, now_ms: int) -> A:
        """Return the answer that a resume value stands for."""

    def lets_change(self, answer: A) -> bool:
        """Whether this answer lets the extension change something."""
        return False
