"""An agent turn with three tool calls in a real process, a real host and a real SIGKILL at every boundary."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Ledger, Record
from tests.forked import python
from tests.host.agent_child import is_killed

ROOT = Path(__file__).parents[2]
AGENT = ("agent.", "provider.usage", "output.chunk")


def live(folder: Path, deadline: int) -> int:
    done = python("tests.host.agent_child", str(folder), str(deadline))
    assert done.returncode in (0, -9), f"ended with {done.returncode}: {done.stderr}"
    return done.returncode


def records(folder: Path, prefix: str = "run/run_child") -> list[Record]:
    async def read() -> list[Record]:
        async with Ledger.open(folder / "data" / "ledger.db") as ledger:
            verified = await ledger.verify()
            assert verified.ok, verified.faults
            return [record for _, record in await ledger.read_all(prefix)]

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
    """The turns whose model answer is on record, in the relay's session."""
    keys: dict[str, str] = {}
    ended = set()
    for record in records(folder, "relay/"):
        if record.type == "crp.dispatch.start":
            keys[record.payload["dispatch_id"]] = record.payload["key"].split("/")[1].removeprefix("turn-")
        elif record.type == "crp.dispatch.complete":
            ended.add(record.payload["dispatch_id"])
    return {keys[name] for name in ended}


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
    try:
        _check(folder, calm, deadline)
    except Exception as error:
        error.add_note(_evidence(folder, deadline))
        raise


def _check(folder: Path, calm: Path, deadline: int) -> None:
    assert is_killed(live(folder, deadline), folder)
    known, before = answered(folder), asked(folder)
    assert all(count == 1 for count in before.values()), "one life asks once"
    assert live(folder, 0) == 0
    assert story(folder) == story(calm)
    assert records(folder)[-1].payload["outputs"]["output"] == "The Aurora lies at berth 7."
    again = asked(folder) - before
    assert again == Counter({"0", "1"} - known), "what is on record is not asked for again, and the rest once"
    project = folder / "project"
    assert (project / "ran.log").read_text() == "ran\n", "the unsafe tool ran once"
    assert (project / "copy.md").read_text() == "berth 7\n"


def _evidence(folder: Path, deadline: int) -> str:
    """What a failure that does not come again leaves behind."""
    log = [f"{item.ts} {item.type} {item.payload.get('key', '')}" for item in records(folder)]
    files = [f"{path.name}: {path.read_text()!r}" for path in sorted((folder / "project").glob("*"))]
    return "\n".join([f"boundary {deadline}, asked {dict(asked(folder))}", *files, *log])


@pytest.mark.parametrize("deadline", [3, 7, 9, 13, 21, 27, 34])
def test_killed_at_a_boundary(tmp_path: Path, calm: Path, deadline: int) -> None:
    check(tmp_path, calm, deadline)


@pytest.mark.sweep
def test_killed_at_every_boundary(tmp_path: Path, calm: Path) -> None:
    total = int((calm / "boundaries").read_text())
    assert total > 30
    for deadline in range(1, total):
        folder = tmp_path / str(deadline)
        folder.mkdir()
        check(folder, calm, deadline)
