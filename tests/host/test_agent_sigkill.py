"""An agent turn with three tool calls in a real process, a real host and a real SIGKILL at every boundary."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.kernel.ledger import Ledger, Record

ROOT = Path(__file__).parents[2]
AGENT = ("agent.", "provider.usage", "output.chunk")


def live(folder: Path, deadline: int) -> int:
    command = [sys.executable, "-m", "tests.host.agent_child", str(folder), str(deadline)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def records(folder: Path) -> list[Record]:
    async def read() -> list[Record]:
        async with Ledger.open(folder / "data" / "ledger.db") as ledger:
            verified = await ledger.verify()
            assert verified.ok, verified.faults
            return await ledger.read("run/run_child")

    return asyncio.run(read()) if (folder / "data" / "ledger.db").exists() else []


def story(folder: Path) -> list[Any]:
    """What the agent said and did, without times, and without who vouched for an effect."""
    told = []
    for record in records(folder):
        if record.type.startswith(AGENT):
            payload = {key: value for key, value in record.payload.items() if key not in ("durationMs", "status")}
            told.append((record.type, payload))
    return told


def answered(folder: Path) -> set[str]:
    """The turns whose model answer is on record."""
    keys = [record.payload["key"] for record in records(folder) if record.type == "holdfast.effect.recorded"]
    return {key.split("/")[1].removeprefix("turn-") for key in keys if key.startswith("model/")}


def asked(folder: Path) -> Counter[str]:
    file = folder / "model"
    return Counter(file.read_text().split()) if file.exists() else Counter()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calm")
    assert live(folder, 0) == 0
    assert asked(folder) == {"0": 1, "1": 1}
    ended = records(folder)[-1]
    assert ended.type == "run.completed"
    assert ended.payload["outputs"]["output"] == "The Aurora lies at berth 7."
    return folder


def check(folder: Path, calm: Path, deadline: int) -> None:
    assert live(folder, deadline) == -9
    known, before = answered(folder), asked(folder)
    assert live(folder, 0) == 0
    assert story(folder) == story(calm)
    assert records(folder)[-1].payload["outputs"]["output"] == "The Aurora lies at berth 7."
    after = asked(folder)
    assert all(after[turn] == before[turn] for turn in known), "an answer on record was asked for again"
    assert all(count <= 2 for count in after.values())
    project = folder / "project"
    assert (project / "ran.log").read_text() == "ran\n", "the unsafe tool ran once"
    assert (project / "copy.md").read_text() == "berth 7\n"


@pytest.mark.parametrize("deadline", [3, 13, 25, 33, 39, 45])
def test_killed_at_a_boundary(tmp_path: Path, calm: Path, deadline: int) -> None:
    check(tmp_path, calm, deadline)


@pytest.mark.sweep
def test_killed_at_every_boundary(tmp_path: Path, calm: Path) -> None:
    total = int((calm / "boundaries").read_text())
    assert total > 40
    for deadline in range(1, total):
        folder = tmp_path / str(deadline)
        folder.mkdir()
        check(folder, calm, deadline)
