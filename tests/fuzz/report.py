"""What a search reports."""

from __future__ import annotations

import msgspec


class Defect(msgspec.Struct, frozen=True):
    """What an input did that it must not: the place where it was raised, the words, the input."""

    where: str
    what: str
    input: bytes


class Report(msgspec.Struct):
    """A search so far."""

    defects: dict[str, Defect]
    executions: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
