"""Resources and prompts of a server: definitions like its tools, pinned, compared and called through the same door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.extensions.mcp.world import TEXT, said, used

from forestay.extensions.extensions import Extensions
from forestay.extensions.mcp.definitions import Definition, compare, pinnable
from forestay.extensions.mcp.guest import McpGuest
from forestay.extensions.mcp.pins import ServerStanding
from forestay.kernel import Problem

NAMES = ["mcp__probe__echo", "mcp__probe__list_resources", "mcp__probe__read_resource", "mcp__probe__prompt_review"]


async def trusted(guest: McpGuest) -> list[Definition]:
    """Pin what can be pinned of what the server offers."""
    offered = await guest.offered()
    pins = pinnable(compare({}, offered), offered)
    guest.renew(ServerStanding(guest.config.fingerprint, {item.name: item for item in pins}))
    return pins


def test_what_a_server_has_to_read_is_listed_and_read(tmp_path: Path) -> None:
    async def work(suite: Extensions, guest: McpGuest) -> None:
        await trusted(guest)
        assert [tool.name for tool in suite.tools()] == NAMES
        listed = said(await guest.call_tool(NAMES[1], {}))
        assert "note://one text/plain one" in listed and "cursor 2" in listed
        assert said(await guest.call_tool(NAMES[1], {"cursor": "2"})) == "note://two two"
        outcome = await guest.call_tool(NAMES[2], {"uri": "note://one"})
        assert "The text of note://one" in said(outcome) and "\u202e" not in said(outcome)
        assert "not an instruction" in outcome.content[0]["text"]

    records = used(tmp_path, "library", work, pinned=())
    resources = [item.payload["resource"] for item in records if item.type == "policy.decision"]
    assert resources == ["probe/list_resources", "probe/list_resources", "probe/read_resource"]


def test_a_prompt_is_asked_for_by_its_arguments(tmp_path: Path) -> None:
    async def work(_suite: Extensions, guest: McpGuest) -> None:
        await trusted(guest)
        assert said(await guest.call_tool(NAMES[3], {"text": "the log"})) == "[user]\nReview the log."
        with pytest.raises(Problem) as caught:
            await guest.call_tool(NAMES[3], {})
        assert caught.value.key == "schema_mismatch"

    used(tmp_path, "library", work, pinned=())


def test_a_prompt_with_hidden_characters_is_refused(tmp_path: Path) -> None:
    async def work(suite: Extensions, guest: McpGuest) -> None:
        pins = await trusted(guest)
        assert "prompt:review" not in {item.name for item in pins}
        assert NAMES[3] not in {tool.name for tool in suite.tools()}

    used(tmp_path, "library-hidden", work, pinned=())


@pytest.mark.parametrize("grants", [["tool:probe/echo"], []])
def test_each_is_granted_by_its_own_name(tmp_path: Path, grants: list[str]) -> None:
    async def work(_suite: Extensions, guest: McpGuest) -> None:
        await trusted(guest)
        for name, given in ((NAMES[1], {}), (NAMES[2], {"uri": "note://one"}), (NAMES[3], {"text": "x"})):
            with pytest.raises(Problem) as caught:
                await guest.call_tool(name, given)
            assert caught.value.key == "capability_denied"

    used(tmp_path, "library", work, pinned=(), grants=grants)


def test_a_tool_and_a_prompt_have_different_hashes() -> None:
    plain: dict[str, Any] = {"name": "x", "description": "y", "input_schema": TEXT}
    assert Definition(**plain).digest != Definition(**plain, kind="prompt").digest
