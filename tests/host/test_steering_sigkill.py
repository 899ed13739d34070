"""What an extension says to an agent at work, and a real SIGKILL at every boundary: heard once, in its place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from forestay.sessions import text_of
from tests.forked import python
from tests.host.agent_child import is_killed
from tests.host.test_session_sigkill import records

STORY = [
    ("user", "Write it down."),
    ("assistant", "I write."),
    ("toolResult", "first.md"),
    ("toolResult", "second.md"),
    ("user", "Make haste."),
    ("wind", "Calm."),
    ("assistant", "I hurry."),
    ("tide", "The tide is high."),
    ("assistant", "So it is."),
    ("user", "And then rest."),
    ("assistant", "I rest."),
]


def live(folder: Path, deadline: int) -> int:
    done = python("tests.host.steering_child", str(folder), str(deadline))
    assert done.returncode in (0, -9), f"ended with {done.returncode}: {done.stderr}"
    return done.returncode


def told(folder: Path) -> list[tuple[str, str]]:
    entries = [record.payload for record in records(folder) if record.type == "session.entry"]
    return [_line(entry) for entry in entries]


def _line(entry: dict[str, Any]) -> tuple[str, str]:
    if entry["type"] == "custom_message":
        return entry["customType"], entry["content"]
    role, text = entry["message"]["role"], text_of(entry["message"]["content"])
    return role, next((name for name in ("first.md", "second.md") if role == "toolResult" and name in text), text)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calm")
    assert live(folder, 0) == 0
    assert told(folder) == STORY
    return folder


def check(folder: Path, deadline: int) -> None:
    assert is_killed(live(folder, deadline), folder)
    before = told(folder)
    assert before == STORY[: len(before)], "what is in the session after a crash is a beginning of it"
    assert live(folder, 0) == 0
    assert told(folder) == STORY
    turns = [record.payload["runId"] for record in records(folder) if record.type == "session.turn"]
    assert len(turns) == len(set(turns)) == 2, "the steered turn, and the one that came after it"
    asked = Counter((folder / "model").read_text().split())
    assert set(asked) == {"0", "1", "2", "3"} and max(asked.values()) <= 2, asked


@pytest.mark.parametrize("deadline", [12, 20, 26, 32])
def test_killed_while_an_agent_is_steered(tmp_path: Path, calm: Path, deadline: int) -> None:
    assert int((calm / "boundaries").read_text()) > deadline
    check(tmp_path, deadline)


@pytest.mark.sweep
def test_killed_at_every_boundary_of_a_turn_that_is_steered(tmp_path: Path, calm: Path) -> None:
    for deadline in range(1, int((calm / "boundaries").read_text())):
        folder = tmp_path / str(deadline)
        folder.mkdir()
        try:
            check(folder, deadline)
        except BaseException as error:
            error.add_note(f"boundary {deadline}")
            raise
