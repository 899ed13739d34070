"""What a run asks about its MCP server for the host: signing in at it, and a tool that changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions import Definition, Pins, read_servers
from forestay.host import Host
from tests.extensions.mcp.oauth_server import Authority, consent, guarded
from tests.forked import forestay
from tests.host.mcp_world import TEXT, answered, host_with, question, started
from tests.host.test_agent_node import settled
from tests.host.test_mcp_questions import killed

PARAMETERS = {"text": {"title": "Text", "type": "string"}}
SPOKEN = Definition("echo", "Says it again.", {**TEXT, "properties": PARAMETERS, "title": "echoArguments"})


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Authority]]:
    with guarded() as found:
        yield found


def came_back(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer of a person who opens the address of the question and agrees."""
    edited = {"arguments": {"address": consent(asked["artifactData"]["open"])}}
    return {"action": "edit-accept", "editedArtifactData": edited}


def test_a_run_asks_a_person_to_sign_in_when_it_first_needs_it(tmp_path: Path, server: tuple[str, Authority]) -> None:
    async def story() -> None:
        async with host_with(tmp_path / "project", "good", url=server[0], echo=SPOKEN) as host:
            run_id = await started(host, "seven")
            assert (await settled(host, run_id)).status == "waiting-approval"
            asked = await question(host, run_id)
            assert asked["artifactType"] == "mcp-sign-in" and asked["title"].startswith("Sign in at 127.0.0.1")
            done = await answered(host, run_id, came_back(asked))
            assert done.status == "completed" and "seven" in str(done.outputs)
            again = await started(host, "eight")
            assert (await settled(host, again)).status == "completed"  # signed in already

    asyncio.run(story())


def test_a_person_who_does_not_sign_in_ends_the_call(tmp_path: Path, server: tuple[str, Authority]) -> None:
    async def story() -> None:
        async with host_with(tmp_path / "project", "good", url=server[0], echo=SPOKEN) as host:
            run_id = await started(host, "seven")
            await settled(host, run_id)
            done = await answered(host, run_id, {"action": "reject"})
            assert done.status == "failed" and "Nobody signed in" in str(done.error)

    asyncio.run(story())


def test_signing_in_is_asked_again_after_the_host_died(tmp_path: Path, server: tuple[str, Authority]) -> None:
    """The verifier of the first question died with the host, so its answer is worth nothing; the next one is."""
    world = {"url": server[0], "read_only": True}
    project = tmp_path / "project"
    run_id = killed(project, "good", "waiting", "seven", **world, schema=SPOKEN.input_schema)

    async def story() -> None:
        async with host_with(project, "good", **world, echo=SPOKEN) as host:  # type: ignore[arg-type]
            stale = came_back(await question(host, run_id))
            assert (await answered(host, run_id, stale)).status == "waiting-approval"
            done = await answered(host, run_id, came_back(await question(host, run_id)))
            assert done.status == "completed" and "seven" in str(done.outputs)

    asyncio.run(story())


async def pinned(host: Host) -> dict[str, Definition]:
    named = read_servers(host.root, host.config.mcpServers).named("probe")
    return (await Pins(host.ledger, host.root).standing(named))["probe"].pinned


@pytest.mark.parametrize(("action", "status"), [("accept", "completed"), ("reject", "failed")])
def test_a_changed_tool_is_a_question_whose_yes_pins(tmp_path: Path, action: str, status: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "stage").write_text("1")

    async def story() -> None:
        async with host_with(project, "drift") as host:
            run_id = await started(host, "seven")
            assert (await settled(host, run_id)).status == "waiting-approval"
            asked = await question(host, run_id)
            assert asked["artifactType"] == "mcp-tool-changed" and asked["actions"][0] == "accept"
            assert "+" in asked["artifactData"]["diff"] and "evil.example" in asked["artifactData"]["diff"]
            done = await answered(host, run_id, {"action": action})
            assert done.status == status, done.error
            now = await pinned(host)
            assert list(now) == ["echo"], "the yes is for the tool that was shown"
            assert ("evil" in now["echo"].description) is (action == "accept")
            again = await started(host, "eight")  # known to be changed: the question comes before the server is reached
            last = await settled(host, again)
            assert last.status == ("completed" if action == "accept" else "waiting-approval")

    asyncio.run(story())


def test_the_question_about_a_changed_tool_survives_the_host(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "stage").write_text("1")
    run_id = killed(project, "drift", "waiting", "seven", read_only=True)

    async def story() -> None:
        async with host_with(project, "drift", read_only=True) as host:
            done = await answered(host, run_id, {"action": "accept"})
            assert done.status == "completed" and "evil" in (await pinned(host))["echo"].description

    asyncio.run(story())


def test_a_server_that_changes_again_while_a_person_reads_is_asked_about_again(tmp_path: Path) -> None:
    """A yes is for the definition that was shown; it does not reach the next one."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "stage").write_text("1")
    run_id = killed(project, "drift", "waiting", "seven", read_only=True)
    (project / "stage").write_text("2")

    async def story() -> None:
        async with host_with(project, "drift", read_only=True) as host:
            assert (await answered(host, run_id, {"action": "accept"})).status == "waiting-approval"
            assert "twice" in (await question(host, run_id))["artifactData"]["diff"]
            assert (await pinned(host))["echo"].description == "Says it again."

    asyncio.run(story())


def test_trust_signs_in_at_a_terminal_or_says_that_nobody_is_there(
    tmp_path: Path, server: tuple[str, Authority]
) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"web": {"url": server[0]}}}))
    done = forestay(tmp_path, "mcp", "trust", "web", "--yes", "--json")
    error = json.loads(done.stdout)["error"]
    assert error["details"]["problem"] == "consent_required" and "Traceback" not in done.stderr
