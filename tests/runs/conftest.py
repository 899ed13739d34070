"""A runs service on a real ledger, in the clock's time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Ids, SeededRandomness
from forestay.runs.service import Runs, projections
from tests.runs.patient import CountedLedger, PatientClock

TENANT = "acme"


@pytest.fixture
def clock() -> PatientClock:
    return PatientClock()


Host = Callable[..., Any]


@pytest.fixture
def host(tmp_path: Path, clock: PatientClock) -> Host:
    """`async with host() as runs`: again on the same file for a restart."""
    made = 0

    @asynccontextmanager
    async def open_host(**options: Any) -> AsyncIterator[Runs]:
        nonlocal made
        made += 1
        randomness = SeededRandomness(made)
        ids = Ids(clock, randomness)
        async with CountedLedger.open(
            tmp_path / "ledger.db", projections=projections(), clock=clock, ids=ids
        ) as ledger:
            # Far apart, so that hours of waiting are few jumps of the clock.
            options = {"sample_seams": True, "sweep_seconds": 30.0, "lease_seconds": 3600.0, **options}
            runs = Runs(ledger, clock=clock, ids=ids, randomness=randomness, secret=b"s" * 32, **options)
            async with runs:
                yield runs

    return open_host
