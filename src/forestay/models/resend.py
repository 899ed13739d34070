"""Sending a request again while nothing of its answer was shown, and never after (M6, CRP C15)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import msgspec

from forestay.kernel import Problem, Randomness
from forestay.models.faults import Endpoint, silent
from forestay.models.protocol import Deltas

Attempt = Callable[[], Deltas]


class Retries(msgspec.Struct, frozen=True):
    """How often to try, and how long to wait; a hint of the provider that is no longer than `longest_wait` is kept."""

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 60.0
    jitter: float = 0.5


DEFAULT_RETRIES = Retries()


async def resend(attempt: Attempt, retries: Retries, randomness: Randomness) -> Deltas:
    """The deltas of `attempt()`, tried again as long as it fails before its first one."""
    for number in itertools.count(1):
        stream = attempt()
        try:
            first = await anext(stream)
            break
        except Problem as problem:
            wait = _wait(problem, number, retries, randomness)
            if wait is None:
                raise
        await asyncio.sleep(wait)
    try:
        yield first
        async for delta in stream:
            yield delta
    finally:
        await stream.aclose()


async def paced(stream: Deltas, silence: float, endpoint: Endpoint) -> Deltas:
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
                raise silent(endpoint, silence, began=shown) from error
            shown = True
            yield delta
    finally:
        await stream.aclose()


def _wait(problem: Problem, attempt: int, retries: Retries, randomness: Randomness) -> float | None:
    """How many seconds to wait before the next attempt: the provider's hint, else ever longer; None gives up."""
    advice = problem.details.get("should_retry")
    if attempt >= retries.attempts or not (problem.row.retryable if advice is None else advice):
        return None
    if problem.retry_after_ms is not None:
        hint = problem.retry_after_ms / 1000
        return hint if hint <= retries.longest_wait else None
    return min(retries.longest_wait, retries.first_wait * 2.0 ** (attempt - 1) + retries.jitter * randomness.uniform())
