"""Runs with node types of the project itself: what a person sees when their code changes or fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_runs import Shell
from tests.runs.documents import edge, node, workflow

NODES = """
from pathlib import Path

from forestay.runs.nodes import NodeContext, node


@node("mine.read")
async def read(ctx: NodeContext) -> dict:
    return {"word": Path("word.txt").read_text().strip()}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A project with one node type, trusted, and a workflow of it."""
    (tmp_path / "forestay.toml").write_text('[workflows]\npaths = ["workflows"]\nnodes = ["nodes.py"]\n')
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


BROKEN = """
from forestay.runs.nodes import NodeContext, node

SECRET = "hunter2-is-no-part-of-a-trace"


def look_up(table: dict) -> str:
    return table["deep"]  # hunter2


@node("mine.read")
async def read(ctx: NodeContext) -> dict:
    try:
        return {"word": look_up({})}
    except KeyError as error:
        raise ValueError("no word") from error
"""


def test_a_node_that_fails_shows_file_and_line(shell: Shell) -> None:
    (shell.folder / "nodes.py").write_text(BROKEN)
    shell("workflow", "trust")
    ran = shell("run", "start", "mine", "--wait")
    trace = ["nodes.py:16 in read", "after KeyError: 'deep'", "nodes.py:14 in read", "nodes.py:8 in look_up"]
    document = json.loads(ran.out)
    run = document["result"]
    assert run["error"]["message"] == "ValueError: no word"
    assert run["error"]["details"] == {"traceback": trace} == run["nodeStates"]["read"]["error"]["details"]
    assert document["error"]["details"]["traceback"] == trace
    assert ran.err == ""  # piped, the answer is the envelope alone
    shown = shell("run", "show", run["runId"], "--human").out
    assert all(line in shown for line in trace)
    told = shell("run", "watch", run["runId"], "--human")
    assert all(line in told.err for line in trace)
    assert "hunter2" not in ran.out + shown + told.out + told.err
    events = shell("run", "events", run["runId"]).result["events"]
    failed = [event for event in events if event["type"] in ("node.failed", "run.failed")]
    assert [event["payload"]["error"]["details"]["traceback"] for event in failed] == [trace, trace]
    assert shell("run", "replay", run["runId"]).code == 0
