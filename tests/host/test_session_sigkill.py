"""A conversation in a real process, and a real SIGKILL at every boundary of its turns: same entries, nothing twice."""

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


def live(folder: Path, deadline: int) -> int:
    done = python("tests.host.session_child", str(folder), str(deadline))
    assert done.returncode in (0, -9), f"ended with {done.returncode}: {done.stderr}"
    return done.returncode


def records(folder: Path) -> list[Record]:
    async def read() -> list[Record]:
        async with Ledger.open(folder / "data" / "ledger.db") as ledger:
            verified = await ledger.verify()
            assert verified.ok, verified.faults
            return [record for _, record in await ledger.read_all("session/")]

    return asyncio.run(read()) if (folder / "data" / "ledger.db").exists() else []


def told(folder: Path) -> list[Any]:
    """What the session holds, without ids and times; each entry with the number of its parent."""
    entries = [record.payload for record in records(folder) if record.type == "session.entry"]
    at = {entry["id"]: number for number, entry in enumerate(entries)}
    kept = ("role", "content", "toolName", "stopReason", "isError")
    return [
        (entry["type"], at.get(entry["parentId"]), {name: entry["message"].get(name) for name in kept})
        for entry in entries
    ]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calm")
    assert live(folder, 0) == 0
    assert [item[2]["role"] for item in told(folder)] == [
        "user", "assistant", "user", "assistant", "toolResult", "toolResult", "assistant",
    ]  # fmt: skip
    assert [item[1] for item in told(folder)] == [None, 0, 1, 2, 3, 4, 5]
    return folder


def check(folder: Path, calm: Path, deadline: int) -> None:
    assert is_killed(live(folder, deadline), folder)
    before = told(folder)
    assert before == told(calm)[: len(before)], "what is in the session after a crash is a beginning of it"
    assert live(folder, 0) == 0
    sessions = {record.stream for record in records(folder)}
    assert len(sessions) == 1
    # Whether the command had an end when the process died, a person said: its result is their words.
    assert _without_results(told(folder)) == _without_results(told(calm))
    turns = [record.payload["runId"] for record in records(folder) if record.type == "session.turn"]
    assert len(turns) == len(set(turns)) == 2, "each turn was begun once"
    assert (folder / "project" / "ran.log").read_text() == "ran\n", "the command ran once"
    asked = Counter((folder / "model").read_text().split())
    assert set(asked) == {"0", "1", "2"} and max(asked.values()) <= 2, asked


def _without_results(story: list[Any]) -> list[Any]:
    def shown(message: dict[str, Any]) -> dict[str, Any]:
        of_bash = message["toolName"] == "bash"
        return {name: value for name, value in message.items() if not (of_bash and name in ("content", "isError"))}

    return [(kind, parent, shown(message)) for kind, parent, message in story]


@pytest.mark.parametrize("deadline", [3, 9, 14, 23])
def test_killed_at_a_boundary_of_a_conversation(tmp_path: Path, calm: Path, deadline: int) -> None:
    check(tmp_path, calm, deadline)


@pytest.mark.sweep
def test_killed_at_every_boundary_of_a_conversation(tmp_path: Path, calm: Path) -> None:
    total = int((calm / "boundaries").read_text())
    assert total > 30
    for deadline in range(1, total):
        folder = tmp_path / str(deadline)
        folder.mkdir()
        try:
            check(folder, calm, deadline)
        except BaseException as error:
            error.add_note(f"boundary {deadline}")
            raise
