"""What a VM may use, and how it ends when it uses more."""

from __future__ import annotations

from typing import Literal

import msgspec

TrapKind = Literal["timeout", "memory", "stack", "engine"]


class Limits(msgspec.Struct, frozen=True):
    """`slice_ms` bounds one tick of JavaScript; `budget`, where set, bounds it in the engine's own steps and so
    deterministically: one step of the budget is about ten thousand loop turns or calls."""

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
    """JavaScript threw; the VM lives. `description` is what the guest said of it, as JSON text."""

    def __init__(self, description: bytes) -> None:
        super().__init__(description.decode("utf-8", "replace"))
        self.description = description
