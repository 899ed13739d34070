"""A server's question in a run, a host that dies at it, and a host that dies while a server works."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Problem
from tests.forked import python
from tests.host.mcp_world import answered, host_with, question, started
from tests.host.test_agent_node import settled

ROOT = Path(__file__).parents[2]
BERTH = {"type": "object", "properties": {"berth": {"type": "integer"}}, "required": ["berth"]}
ELICIT = {"method": "elicitation/create", "params": {"message": "Which berth?", "requestedSchema": BERTH}}
ASKS = json.dumps([ELICIT])
SEVEN = {"action": "edit-accept", "editedArtifactData": {"arguments": {"berth": 7}}}


def killed(folder: Path, mode: str, when: str, text: str, **world: Any) -> str:
    """A host that dies by SIGKILL; the id of its run."""
    folder.mkdir(exist_ok=True)
    (folder / "text").write_text(text)
    done = python("tests.host.mcp_world", str(folder), mode, when, json.dumps(world))
    assert done.returncode == -9, done.stderr
    return (folder / "run").read_text()


def test_a_run_asks_what_its_server_asks(tmp_path: Path) -> None:
    async def story() -> None:
        async with host_with(tmp_path / "project", "requests", caps=["ui"]) as host:
            run_id = await started(host, ASKS)
            assert (await settled(host, run_id)).status == "waiting-approval"
            asked = await question(host, run_id)
            assert asked["artifactType"] == "elicitation" and "Which berth?" in asked["title"]
            assert asked["actions"] == ["edit-accept", "reject"]
            assert asked["artifactData"]["extension"] == "mcp:probe"
            for wrong in ({"action": "accept"}, {**SEVEN, "editedArtifactData": {"arguments": {"berth": "x"}}}):
                with pytest.raises(Problem):
                    await answered(host, run_id, wrong)
            done = await answered(host, run_id, SEVEN)
            assert done.status == "completed" and '"content": {"berth": 7}' in str(done.outputs)

    asyncio.run(story())


def test_a_person_who_declines_is_heard(tmp_path: Path) -> None:
    async def story() -> None:
        async with host_with(tmp_path / "project", "requests", caps=["ui"]) as host:
            run_id = await started(host, ASKS)
            await settled(host, run_id)
            done = await answered(host, run_id, {"action": "reject"})
            assert done.status == "completed" and '"action": "decline"' in str(done.outputs)

    asyncio.run(story())


def test_a_question_is_answered_after_the_host_died(tmp_path: Path) -> None:
    """A tool that only reads runs again and meets the answer; nobody is asked twice."""
    world = {"caps": ["ui"], "read_only": True}
    run_id = killed(tmp_path / "project", "requests", "waiting", ASKS, **world)

    async def story() -> None:
        async with host_with(tmp_path / "project", "requests", **world) as host:
            assert (await question(host, run_id))["artifactType"] == "elicitation"
            done = await answered(host, run_id, SEVEN)
            assert done.status == "completed" and '"content": {"berth": 7}' in str(done.outputs)

    asyncio.run(story())


def test_a_tool_that_changes_things_is_not_begun_again_without_a_word(tmp_path: Path) -> None:
    run_id = killed(tmp_path / "project", "requests", "waiting", ASKS, caps=["ui"])

    async def story() -> None:
        async with host_with(tmp_path / "project", "requests", caps=["ui"]) as host:
            assert (await answered(host, run_id, SEVEN)).status == "waiting-approval"
            assert (await question(host, run_id))["artifactType"] == "uncertain-effect"
            await answered(host, run_id, {"action": "accept"})
            assert (await question(host, run_id))["artifactType"] == "elicitation"  # another call asks for itself
            done = await answered(host, run_id, SEVEN)
            assert done.status == "completed" and '"content": {"berth": 7}' in str(done.outputs)

    asyncio.run(story())


@pytest.mark.parametrize(("action", "status", "lines"), [("accept", "completed", 2), ("reject", "failed", 1)])
def test_a_call_that_was_under_way_when_the_host_died_is_never_repeated_by_itself(
    tmp_path: Path, action: str, status: str, lines: int
) -> None:
    project = tmp_path / "project"
    run_id = killed(project, "append", "calling", "ran", caps=["write"])
    assert (project / "stage").read_text().splitlines() == ["ran"]

    async def story() -> None:
        async with host_with(project, "append", caps=["write"]) as host:
            assert (await settled(host, run_id)).status == "waiting-approval"
            assert (await question(host, run_id))["artifactType"] == "uncertain-effect"
            assert (project / "stage").read_text().splitlines() == ["ran"]
            assert (await answered(host, run_id, {"action": action})).status == status

    asyncio.run(story())
    assert len((project / "stage").read_text().splitlines()) == lines
