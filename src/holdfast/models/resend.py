"""Sending a request again while nothing of its answer was shown, and never after (M6, CRP C15)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec

from holdfast.kernel.problems import Problem
from holdfast.models.protocol import Delta

Attempt = Callable[[], AsyncGenerator[Delta, None]]


class Retries(msgspec.Struct, frozen=True):
    """How often to try, and how long to wait; a hint of the provider that is no longer than `longest_wait` is kept."""

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 60.0
    jitter: float = 0.5


DEFAULT_RETRIES = Retries()


async def resend(attempt: Attempt, retries: Retries) -> AsyncGenerator[Delta, None]:
    """The deltas of `attempt()`, tried again as long as it fails before its first one."""
    import stamina

    stream: AsyncGenerator[Delta, None] | None = None
    first: Delta | None = None
    async for trial in stamina.retry_context(
        on=lambda error: _wait(error, retries.longest_wait),
        attempts=retries.attempts,
        timeout=None,
        wait_initial=retries.first_wait,
        wait_max=retries.longest_wait,
        wait_jitter=retries.jitter,
    ):
        with trial:
            stream = attempt()
            first = await anext(stream)
    assert stream is not None and first is not None
    try:
        yield first
        async for delta in stream:
            yield delta
    finally:
        await stream.aclose()


async def paced(stream: AsyncGenerator[Delta, None], silence: float) -> AsyncGenerator[Delta, None]:
    """`stream`, given up with `provider_timeout` after `silence` seconds without a delta."""
    shown = False
    try:
        while True:
            try:
                async with asyncio.timeout(silence):
                    delta = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise Problem(
                    "provider_timeout",
                    f"The model provider was silent for {silence:g} seconds.",
                    seconds=silence,
                    began=shown,
                    fix="Try again, or raise the time limit.",
                ) from error
            shown = True
            yield delta
    finally:
        await stream.aclose()


def _wait(error: Exception, longest: float) -> bool | float:
    """stamina's backoff hook: False gives up, True backs off, a number is the provider's own hint in seconds."""
    if not isinstance(error, Problem):
        return False
    advice = error.details.get("should_retry")
    if not (error.row.retryable if advice is None else advice):
        return False
    if error.retry_after_ms is None:
        return True
    seconds = error.retry_after_ms / 1000
    return seconds if seconds <= longest else False
