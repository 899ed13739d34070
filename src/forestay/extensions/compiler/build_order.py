"""What a process that builds is told, what it tells while it works, and what it answers: one line of JSON each."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.extensions.compiler.artifact import Artifact


class Order(msgspec.Struct, frozen=True):
    """What a child is to build."""

    path: str


class Step(msgspec.Struct, frozen=True, tag=True):
    """What a build does now."""

    words: str


class Built(msgspec.Struct, frozen=True, tag=True):
    """What came of it: an artifact and the paths that it was made of, or the Problem that stopped the build."""

    artifact: Artifact | None = None
    looked_at: list[str] = []
    problem: str = ""
    message: str = ""
    details: dict[str, Any] = {}
