"""A real process, a real ledger, a real SIGKILL at every boundary of an invocation with three tool calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Ledger
from tests.forked import python

ROOT = Path(__file__).parents[2]


def run(folder: Path, deadline: int) -> int:
    done = python("tests.agents.killed_child", str(folder), str(deadline))
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def story(folder: Path) -> list[Any]:
    """The events in the ledger, without the time they took."""

    async def read() -> list[Any]:
        async with Ledger.open(folder / "ledger.db") as ledger:
            assert (await ledger.verify()).ok
            records = [record.payload["value"] for record in await ledger.read("run/one") if record.type == "event"]
        for _, payload in records:
            payload.pop("durationMs", None)
            payload.pop("status", None)  # an effect that a person vouched for is told to the model as such
        return records

    return asyncio.run(read())


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calm")
    assert run(folder, 0) == 0
    return folder


def check(folder: Path, calm: Path, deadline: int) -> None:
    assert run(folder, deadline) == -9
    assert run(folder, 0) == 0
    assert story(folder) == story(calm)
    done = Counter(line.split()[0] for line in (folder / "tools").read_text().splitlines())
    assert done["do_write:call_0_1"] == done["do_unsafe:call_0_2"] == 1
    asked = Counter((folder / "model").read_text().split())
    assert sum(asked.values()) <= 3  # each answer once, and at most the one that was on its way when it died


@pytest.mark.parametrize("deadline", [1, 5, 11, 15, 17])
def test_killed_at_a_boundary(tmp_path: Path, calm: Path, deadline: int) -> None:
    check(tmp_path, calm, deadline)


@pytest.mark.sweep
def test_killed_at_every_boundary(tmp_path: Path, calm: Path) -> None:
    total = int((calm / "boundaries").read_text())
    assert total > 20
    for deadline in range(1, total + 1):
        folder = tmp_path / str(deadline)
        folder.mkdir()
        check(folder, calm, deadline)
