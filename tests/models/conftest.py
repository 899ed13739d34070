"""Models are tested over loopback; the clock waits longer before it jumps, because the packages use threads."""

from __future__ import annotations

import pytest

from holdfast.kernel.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(threshold=0.1)
