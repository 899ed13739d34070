"""Models are tested over loopback; the clock waits longer before it jumps, because the packages use threads."""

from __future__ import annotations

import pytest

from forestay.kernel import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(threshold=0.1)


@pytest.fixture(scope="session", autouse=True)
def _platform_is_known() -> None:
    """The packages look up the platform in a thread on first use; looked up before, it takes no time to speak of."""
    from anthropic import _base_client as anthropic
    from openai import _base_client as openai

    openai.get_platform()
    anthropic.get_platform()
