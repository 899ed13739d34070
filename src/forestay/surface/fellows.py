"""Follows other processes that serve the same ledger: their changes of keys, and this process's share of each rate."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forestay.kernel import Problem, Workers
from forestay.surface.limits import RateLimits
from forestay.surface.services import Services

_LOOK_SECONDS = 1.0


@asynccontextmanager
async def with_fellows(services: Services, url: str) -> AsyncIterator[None]:
    """Follow the other processes of the ledger within the block; they see this one at `url`."""
    workers = services.host.workers
    if workers is None:
        yield
        return
    workers.describe({**services.host.about, "url": url})
    tasks = [
        asyncio.create_task(services.keys.follow()),
        asyncio.create_task(_share(services.limits, workers)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _share(limits: RateLimits, workers: Workers) -> None:
    """Set this process's share of each rate: equal among the processes that serve callers."""
    while True:
        with contextlib.suppress(Problem):  # the database is away: the share stays as it is
            living = await asyncio.to_thread(workers.living)
            limits.share = 1.0 / max(1, sum("url" in about for about in living))
        await asyncio.sleep(_LOOK_SECONDS)
