"""Runs with node types of the project's own, from the command line: what a person sees when their code changes or fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_runs import Shell
from tests.runs.documents import edge, node, workflow

NODES = """
from pathlib import Path

from holdfast.runs.nodes import NodeContext, node


@node("mine.read")
async def read(ctx: NodeContext) -> dict:
    return {"word": Path("word.txt").read_text().strip()}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A project with one node type, trusted, and a workflow of it."""
    (tmp_path / "holdfast.toml").write_text('[workflows]\npaths = ["workflows"]\nnodes = ["nodes.py"]\n')
    (tmp_path / "nodes.py").write_text(NODES)
    (tmp_path / "word.txt").write_text("first")
    (tmp_path / "workflows").mkdir()
    document = workflow("mine", [node("one"), node("read", "mine.read")], [edge("one", "read")])
    (tmp_path / "workflows" / "mine.json").write_text(json.dumps(document))
    shell = Shell(tmp_path)
    assert shell("workflow", "trust").code == 0
    return shell


def test_a_replay_that_goes_another_way_fails_and_shows_the_first_difference(shell: Shell) -> None:
    run = shell("run", "start", "mine", "--wait").result["runId"]
    same = shell("run", "replay", run)
    assert (same.code, same.result["same"]) == (0, True)
    (shell.folder / "word.txt").write_text("second")
    other = shell("run", "replay", run)
    assert other.code == 7 and json.loads(other.out)["result"]["same"] is False
    details = other.error["details"]
    assert details["problem"] == "replay_diverged"
    assert "node read" in other.error["message"] and '"word":"first"' in details["recorded"]
    assert "another result" in details["replayed"]
    told = shell("run", "replay", run, "--human")
    assert told.code == 7 and '"word":"first"' in told.err
