"""A workflow that calls an MCP server and a component, in a real host that dies by SIGKILL at its boundaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forked import python
from tests.host.agent_child import is_killed
from tests.host.guest_child import MARKS
from tests.host.test_agent_sigkill import records


def live(folder: Path, deadline: int) -> int:
    done = python("tests.host.guest_child", str(folder), str(deadline))
    assert done.returncode in (0, -9), f"ended with {done.returncode}: {done.stderr}"
    return done.returncode


def marks(folder: Path) -> dict[str, int]:
    files = {name: folder / "project" / file for name, file in MARKS.items()}
    return {name: len(file.read_text().splitlines()) if file.exists() else 0 for name, file in files.items()}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calm")
    assert live(folder, 0) == 0
    assert records(folder)[-1].type == "run.completed" and marks(folder) == {"mcp": 1, "component": 1}
    assert not (folder / "asked").exists()
    return folder


def check(folder: Path, deadline: int) -> None:
    """Each tool ran once in both lives together; only a call that was under way is a question, and only once."""
    assert is_killed(live(folder, deadline), folder)
    before, log = marks(folder), [record.type for record in records(folder)]
    assert live(folder, 0) == 0
    ended = records(folder)[-1]
    asked = (folder / "asked").read_text().splitlines() if (folder / "asked").exists() else []
    assert len(asked) <= 1, "one call was under way, at most"
    after = marks(folder)
    assert all(before[name] <= 1 and after[name] <= 1 for name in MARKS), (deadline, before, after, log)
    if asked and before[asked[0]] == 1:  # the person says that it is done; the node has no result of it
        assert ended.type == "run.failed"
        assert after[asked[0]] == 1
    else:
        assert ended.type == "run.completed" and after == {"mcp": 1, "component": 1}, (deadline, after, log)


@pytest.mark.parametrize("quarter", [1, 2, 3])
def test_killed_at_a_boundary(tmp_path: Path, calm: Path, quarter: int) -> None:
    check(tmp_path, int((calm / "boundaries").read_text()) * quarter // 4)


@pytest.mark.sweep
def test_killed_at_every_boundary(tmp_path: Path, calm: Path) -> None:
    total = int((calm / "boundaries").read_text())
    assert total > 20
    for deadline in range(1, total):
        folder = tmp_path / str(deadline)
        folder.mkdir()
        check(folder, deadline)
