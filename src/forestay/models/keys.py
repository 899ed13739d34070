"""Reads a model's key from its source: a variable, a file, or the output of a command.

K1  A key is sent only to its server, and shown nowhere.
K2  A file or a command is read when a request needs the key, outside the event loop, and again after a while, so that a
    renewed key is found.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from forestay.kernel import Clock, Problem

_KEPT_SECONDS = 300.0
_COMMAND_SECONDS = 30.0
_MOST_BYTES = 16_384


class KeySource(msgspec.Struct, frozen=True):
    """The source of a key: at most one of the three. Without any, no key is sent."""

    variable: str = ""
    file: str = ""
    command: Sequence[str] = ()

    @property
    def label(self) -> str:
        """The source's name in a sentence."""
        if self.command:
            return f"the output of `{shlex.join(self.command)}`"
        return f"the file {self.file}" if self.file else self.variable

    @property
    def later(self) -> bool:
        """Whether reading it takes time (K2)."""
        return bool(self.file or self.command)

    def given(self, environ: Mapping[str, str], server: str) -> str | None:
        """Return the key in the variable; raise a Problem when it is not set."""
        if not self.variable:
            return None
        if not (key := environ.get(self.variable, "").strip()):
            raise Problem(
                "provider_unauthenticated",
                f"There is no key for {server}: {self.variable} is not set.",
                variable=self.variable,
                fix=f"Set {self.variable}, or use the model `local`, which needs none.",
            )
        return checked(key, self)


class LaterKey:
    """The key from a file or a command, read when needed and kept for a while (K2)."""

    def __init__(self, source: KeySource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._key = ""
        self._until = 0.0
        self._reading = asyncio.Lock()

    async def __call__(self) -> str:
        async with self._reading:
            if not self._key or self._clock.monotonic() >= self._until:
                read = _printed if self._source.command else _written
                self._key = checked((await asyncio.to_thread(read, self._source)).strip(), self._source)
                self._until = self._clock.monotonic() + _KEPT_SECONDS
            return self._key


def checked(key: str, source: KeySource) -> str:
    """Return a key that a header can carry, or raise a Problem that does not show it (K1)."""
    if not key:
        raise Problem("provider_unauthenticated", f"There is no key: {source.label} is empty.", source=source.label)
    if not (key.isascii() and key.isprintable()):
        told = f"The content of {source.label} cannot be sent as a key."
        fix = "It must be one line of plain characters."
        raise Problem("provider_unauthenticated", told, source=source.label, fix=fix)
    return key


def _written(source: KeySource) -> str:
    try:
        with Path(source.file).expanduser().open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, RuntimeError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "no such place"
        told = f"The key cannot be read: {source.label}: {reason}."
        raise Problem("provider_unauthenticated", told, source=source.label) from error


def _printed(source: KeySource) -> str:
    try:
        done = subprocess.run(
            list(source.command), stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        told = f"`{shlex.join(source.command)}` gave no key within {_COMMAND_SECONDS:g} seconds."
        raise Problem("provider_unauthenticated", told, source=source.label) from error
    except (OSError, ValueError) as error:
        told = f"`{shlex.join(source.command)}` cannot be started."
        raise Problem("provider_unauthenticated", told, source=source.label, reason=str(error)[:200]) from error
    if done.returncode != 0:
        told = f"`{shlex.join(source.command)}` gave no key: it ended with {done.returncode}."
        raise Problem(
            "provider_unauthenticated", told, source=source.label, fix="Run the command yourself to see its error."
        )
    return done.stdout[:_MOST_BYTES].decode("utf-8", "replace")
