"""An MCP server as a guest: lazy, through the one door, with evidence, in the sandbox."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.extensions.mcp.world import TOOL, configured, said, used

from forestay.extensions.extensions import Extensions
from forestay.extensions.mcp.guest import McpGuest
from forestay.extensions.mcp.loader import ServerLoader
from forestay.extensions.mcp.pins import ServerStanding
from forestay.extensions.tool_sources import ExtensionTools, McpTools, at_once
from forestay.kernel import Problem


def test_a_call_is_decided_performed_and_on_record(tmp_path: Path) -> None:
    async def work(suite: Extensions, guest: McpGuest) -> None:
        assert guest.about == {}  # M1: nothing runs yet
        outcome = await suite.call_tool(TOOL, {"text": "seven"})
        assert said(outcome) == "seven" and not outcome.is_error
        assert "not an instruction" in outcome.content[0]["text"]
        assert outcome.details == {"server": "probe", "tool": "echo", "untrusted": True, "truncated": False}
        assert guest.about["serverInfo"]["name"] == "test"

    records = used(tmp_path, "good", work)
    names = [record.type for record in records if record.type.startswith(("host_call", "policy"))]
    assert names == ["host_call.start", "policy.decision", "host_call.end"]
    decision = next(record.payload for record in records if record.type == "policy.decision")
    assert (decision["runtime"], decision["capability"]) == ("mcp", "tool")
    assert decision["resource"] == "probe/echo"


def test_without_a_grant_the_server_is_not_started(tmp_path: Path) -> None:
    async def work(suite: Extensions, guest: McpGuest) -> None:
        with pytest.raises(Problem) as refused:
            await suite.call_tool(TOOL, {"text": "seven"})
        assert refused.value.key == "capability_denied"
        assert guest.about == {}

    records = used(tmp_path, "good", work, grants=())
    assert "extension.server_started" not in [record.type for record in records]


@pytest.mark.parametrize(
    ("grant", "allowed"), [("tool:probe/ec*", True), ("tool:probe/other", False), ("tool:p", False)]
)
def test_a_grant_names_the_server_and_the_tool(tmp_path: Path, grant: str, allowed: bool) -> None:
    async def work(suite: Extensions, _guest: McpGuest) -> None:
        if allowed:
            assert said(await suite.call_tool(TOOL, {"text": "x"})) == "x"
            return
        with pytest.raises(Problem) as refused:
            await suite.call_tool(TOOL, {"text": "x"})
        assert refused.value.key == "capability_denied"

    used(tmp_path, "good", work, grants=[grant])


def test_a_server_that_nobody_approved_gets_no_guest(tmp_path: Path) -> None:
    config = configured(tmp_path, "good")
    for approved in (None, "sha256:" + "0" * 64):
        with pytest.raises(Problem) as refused:
            ServerLoader(None, None, None, None, None, None).guest(config, ServerStanding(approved), None, None, None)  # type: ignore[arg-type]
        assert refused.value.key == "server_unapproved"


def test_its_tools_are_a_source_of_their_own_and_unsafe(tmp_path: Path) -> None:
    async def work(suite: Extensions, _guest: McpGuest) -> None:
        (tool,) = await McpTools(suite, at_once, consents=True).list()
        assert (tool.name, tool.id, tool.effect) == (TOOL, "mcp:probe/echo", "unsafe")
        assert await ExtensionTools(suite, at_once, consents=True).list() == []

    used(tmp_path, "good", work)

    async def person_says(suite: Extensions, _guest: McpGuest) -> None:
        (tool,) = await McpTools(suite, at_once, consents=True).list()
        assert tool.effect == "read"

    used(tmp_path, "good", person_says, read_only=["echo"])


def test_the_program_reads_the_project_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("top secret")

    async def work(suite: Extensions, _guest: McpGuest) -> None:
        assert said(await suite.call_tool(TOOL, {"text": "server.py"})).startswith('"""A small MCP server')
        outside = said(await suite.call_tool(TOOL, {"text": str(tmp_path / "secret")}))
        assert outside.startswith("refused") and "top secret" not in outside
        assert said(await suite.call_tool(TOOL, {"text": "made!"})).startswith("refused")

    used(tmp_path, "read", work)
    assert not (tmp_path / "project/made!").exists()


def test_variables_come_by_grant_only(tmp_path: Path) -> None:
    async def refused(suite: Extensions, _guest: McpGuest) -> None:
        with pytest.raises(Problem) as problem:
            await suite.call_tool(TOOL, {"text": ""})
        assert problem.value.key == "capability_denied" and "OPENAI_API_KEY" in problem.value.message

    async def granted(suite: Extensions, _guest: McpGuest) -> None:
        seen = said(await suite.call_tool(TOOL, {"text": ""}))
        assert "sk-proj-abc" in seen and "hunter2" not in seen and '"MODE": "plain"' in seen

    env = {"KEY": "${OPENAI_API_KEY}", "MODE": "${NOT_SET:-plain}"}
    used(tmp_path, "environment", refused, env=env)
    used(tmp_path, "environment", granted, env=env, grants=["tool", "env:OPENAI_API_KEY"])


def test_an_idle_server_is_stopped_and_started_again(tmp_path: Path) -> None:
    async def work(suite: Extensions, guest: McpGuest) -> None:
        await suite.call_tool(TOOL, {"text": "one"})
        async with asyncio.timeout(20):
            while guest.about:  # until the timer has stopped it
                await asyncio.sleep(0.01)
        assert said(await suite.call_tool(TOOL, {"text": "two"})) == "two"

    records = used(tmp_path, "good", work, idle_seconds=0.05)
    assert [record.type for record in records].count("extension.server_started") == 2


def test_arguments_are_checked_before_the_server_hears_of_them(tmp_path: Path) -> None:
    async def work(suite: Extensions, guest: McpGuest) -> None:
        with pytest.raises(Problem) as problem:
            await suite.call_tool(TOOL, {"txt": "x"})
        assert problem.value.key == "schema_mismatch" and guest.about == {}

    used(tmp_path, "good", work)


def test_the_protocols_package_is_not_loaded_before_a_server_is_reached() -> None:
    told = "import sys, forestay.extensions.mcp.servers; sys.exit('mcp' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", told], timeout=300).returncode == 0
