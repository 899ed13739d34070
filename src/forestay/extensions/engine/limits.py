"""The limits of a VM, and the errors when it exceeds them."""

from __future__ import annotations

from typing import Literal

import msgspec

TrapKind = Literal["timeout", "memory", "stack", "engine"]


class Limits(msgspec.Struct, frozen=True):
    """`slice_ms` limits one tick of JavaScript by time; `budget`, if set, limits it deterministically, in engine steps.

    One step of the budget is about ten thousand loop iterations or calls.
    """

    memory_mb: int = 256
    slice_ms: int = 5_000
    stack_kb: int = 256
    budget: int | None = None

    @property
    def memory_bytes(self) -> int:
        return self.memory_mb * 1024 * 1024


class EngineTrap(Exception):
    """The engine stopped; the VM is lost."""

    def __init__(self, kind: TrapKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class GuestError(Exception):
    """JavaScript threw; the VM still runs. `description` is the guest's description of the error, as JSON text."""

    def __init__(self, description: bytes) -> None:
        super().__init__(description.decode("utf-8", "replace"))
        self.description = description
