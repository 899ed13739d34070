"""A command with dialogs and the turn with two tools that it begins, in a real process, and a real SIGKILL at every
boundary: same entries, nothing asked twice, nothing done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Ledger, Record
from tests.forked import python
from tests.host.agent_child import is_killed

TITLES = ["Her name?", "May it run?", "Which berth?"]


def live(folder: Path, deadline: int, where: str = "there") -> int:
    done = python("tests.host.command_child", str(folder), str(deadline), where)
    assert done.returncode in (0, -9), f"ended with {done.returncode}: {done.stderr}"
    return done.returncode


def records(folder: Path) -> list[Record]:
    async def read() -> list[Record]:
        async with Ledger.open(folder / "data" / "ledger.db") as ledger:
            verified = await ledger.verify()
            assert verified.ok, verified.faults
            return [record for _, record in await ledger.read_all("session/")]

    return asyncio.run(read())


def told(folder: Path) -> list[Any]:
    """What the session holds, without ids and times, in the order of its branch. What a person looked after has their
    words in it: the result of `bash`, and how the rope was made fast."""
    entries = [record.payload for record in records(folder) if record.type == "session.entry"]
    at = {entry["id"]: number for number, entry in enumerate(entries)}
    shown: list[Any] = []
    for entry in entries:
        message = entry.get("message", {})
        kept = {name: message.get(name) for name in ("role", "content", "toolName", "stopReason", "isError")}
        if message.get("toolName") == "bash":
            kept = {name: value for name, value in kept.items() if name not in ("content", "isError")}
        data = {name: value for name, value in entry.get("data", {}).items() if name != "rope"}
        shown.append((entry["type"], entry.get("customType"), at.get(entry["parentId"]), data, kept))
    return shown


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calm")
    assert live(folder, 0) == 0
    kinds = [kind or entry["role"] for _, kind, _, _, entry in told(folder)]
    assert kinds == ["begun", "moored", "user", "assistant", "toolResult", "allowed", "toolResult", "assistant"]
    assert sorted((folder / "answers").read_text().splitlines()) == TITLES
    return folder


def check(folder: Path, calm: Path, deadline: int, where: str) -> None:
    assert is_killed(live(folder, deadline), folder)
    assert live(folder, 0, where) == 0
    assert told(folder) == told(calm)
    turns = [record.payload["runId"] for record in records(folder) if record.type == "session.turn"]
    assert len(turns) == len(set(turns)) == 2, "the command and the turn that it wished for were begun once"
    for file, line in (("moored.log", "moored\n"), ("ran.log", "ran\n")):
        assert (folder / "project" / file).read_text() == line, f"{file}: done once"
    answered = Counter((folder / "answers").read_text().splitlines())
    assert set(answered) <= {*TITLES, "bash?", "exec?"} and max(answered.values()) == 1, answered
    asked = Counter((folder / "model").read_text().split())
    assert set(asked) == {"0", "1"} and max(asked.values()) <= 2, asked


@pytest.mark.parametrize(("deadline", "where"), [(28, "away"), (70, "there")])
def test_killed_at_a_boundary_of_a_command(tmp_path: Path, calm: Path, deadline: int, where: str) -> None:
    check(tmp_path, calm, deadline, where)


@pytest.mark.sweep
def test_killed_at_every_boundary_of_a_command(tmp_path: Path, calm: Path) -> None:
    total = int((calm / "boundaries").read_text())
    assert total > 60
    for deadline in range(1, total):
        folder = tmp_path / str(deadline)
        folder.mkdir()
        try:
            check(folder, calm, deadline, "away" if deadline % 2 else "there")
        except BaseException as error:
            error.add_note(f"boundary {deadline}")
            raise
