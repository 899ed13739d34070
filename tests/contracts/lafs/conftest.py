"""A success and a failure to work on."""

from __future__ import annotations

import pytest

from forestay.envelope import (
    Envelope,
    failure,
    success,
)
from forestay.kernel import Ids, ManualClock, Problem


@pytest.fixture
def ok(clock: ManualClock, ids: Ids) -> Envelope:
    return success("thing.get", {"id": "t1", "name": "Thing", "size": 3}, clock=clock, ids=ids)


@pytest.fixture
def bad(clock: ManualClock, ids: Ids) -> Envelope:
    return failure(Problem("not_found", "No such thing.", at="$.id"), "thing.get", clock=clock, ids=ids)
