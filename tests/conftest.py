"""What every test may use: a clock that jumps, seeded ids, and coroutine tests that run in the clock's time."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from forestay.kernel import Ids, ManualClock, SeededRandomness
from tests.databases import left_out, no_ledgers, opens_no_ledger
from tests.postgres import ON_POSTGRES

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes read what the first one compiled
# Log files of extensions belong to whoever runs the tests, not into their home.
os.environ.setdefault("PI_EXTENSION_LOG_DIR", str(Path(tempfile.gettempdir()) / "forestay-test-logs"))

# A property holds or does not; how long an example took says only what else the machine was doing.
# The same examples each time, so that a failure is one that everybody sees. `make sweep` searches among others.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("searching"), derandomize=True)
settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    """Each process that runs tests has a server of its own."""
    starts_others = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if ON_POSTGRES and not starts_others:
        from tests.kernel.ledger.at_path import use_postgres

        use_postgres()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On PostgreSQL, leave out what `one_database.md` lists."""
    if ON_POSTGRES:
        items[:] = [item for item in items if left_out(item.nodeid) is None]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with no_ledgers() if opens_no_ledger(item.nodeid) else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """On PostgreSQL, have a test's ledgers used again."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    result = yield
    if ON_POSTGRES and folder is not None:
        from tests.kernel.ledger.at_path import give_back

        give_back(folder)
    return result


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
