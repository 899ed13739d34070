"""What every test may use: a clock that jumps, seeded ids, and coroutine tests that run in the clock's time."""

from __future__ import annotations

import inspect
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from forestay.kernel import Ids, ManualClock, SeededRandomness

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes read what the first one compiled
# Log files of extensions belong to whoever runs the tests, not into their home.
os.environ.setdefault("PI_EXTENSION_LOG_DIR", str(Path(tempfile.gettempdir()) / "forestay-test-logs"))

# A property holds or does not; how long an example took says only what else the machine was doing.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ids(clock: ManualClock) -> Ids:
    return Ids(clock, SeededRandomness(1))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """Run `async def test_…` on the test's ManualClock (the `clock` fixture, or one of its own)."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    clock = pyfuncitem.funcargs.get("clock")
    (clock if isinstance(clock, ManualClock) else ManualClock()).run(pyfuncitem.obj(**arguments))
    return True
