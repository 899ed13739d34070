"""A server at an address: checked addresses, bounded answers, no redirect to elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.extensions.mcp.http_server import serving
from tests.extensions.mcp.world import TOOL, said, used

from forestay.extensions.extensions import Extensions
from forestay.extensions.mcp import http
from forestay.extensions.mcp.guest import McpGuest
from forestay.kernel import Problem


def reached(folder: Path, url: str, work: Any, **entry: Any) -> Any:
    return used(folder, "good", work, command="", args=[], url=url, **entry)


def test_a_tool_is_called_over_http_with_the_headers_of_the_entry(tmp_path: Path) -> None:
    async def work(suite: Extensions, _guest: McpGuest) -> None:
        assert said(await suite.call_tool(TOOL, {"text": "seven"})) == "seven"

    with serving("good") as (url, heard):
        records = reached(
            tmp_path, url, work, headers={"X-Key": "${OPENAI_API_KEY}"}, grants=["tool", "env:OPENAI_API_KEY"]
        )
    assert [item["method"] for item in heard].count("tools/call") == 1
    assert heard[-1]["headers"]["X-Key"].startswith("sk-proj-")
    assert "extension.server_started" in [record.type for record in records]


FAILS = {
    "gzip": "compressed its answer",
    "huge": "more than",
    "redirect": "Redirect",
}


@pytest.mark.parametrize("mode", FAILS)
def test_a_hostile_answer_is_contained(tmp_path: Path, mode: str) -> None:
    async def work(suite: Extensions, _guest: McpGuest) -> None:
        with pytest.raises(Problem) as problem:
            await suite.call_tool(TOOL, {"text": "seven"})
        assert problem.value.key in ("server_failed", "tool_failed"), problem.value
        assert FAILS[mode] in problem.value.message

    with serving("good") as (elsewhere, unheard), serving(mode, elsewhere) as (url, _):
        reached(tmp_path, url, work)
    assert unheard == []


def test_a_silent_server_does_not_hang_the_call(tmp_path: Path) -> None:
    async def work(suite: Extensions, _guest: McpGuest) -> None:
        with pytest.raises(Problem) as problem:
            await suite.call_tool(TOOL, {"text": "seven"})
        assert problem.value.key == "timeout"

    with serving("silent") as (url, _):
        reached(tmp_path, url, work, call_seconds=0.5)


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["::ffff:169.254.169.254"]])
def test_a_name_that_leads_to_a_private_address_is_refused(
    tmp_path: Path, addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "resolve_host", lambda _host, _port: addresses)

    async def work(suite: Extensions, _guest: McpGuest) -> None:
        with pytest.raises(Problem) as problem:
            await suite.call_tool(TOOL, {"text": "seven"})
        assert problem.value.key == "address_blocked"

    with serving("good") as (url, heard):
        reached(tmp_path, url.replace("127.0.0.1", "server.example"), work)
    assert heard == []
