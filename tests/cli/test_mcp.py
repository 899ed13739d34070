"""`forestay mcp`: from an entry in a file to a pinned tool that is called; and the host as a server of others."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests import forked

SERVER = Path(__file__).parents[1] / "extensions/mcp/server.py"


def forestay(folder: Path, *words: str) -> dict[str, Any]:
    """One command in a project folder; its envelope."""
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "FORESTAY_DATA_DIR": str(folder / "data")}
    done = forked.forestay(folder, "mcp", *words, environ=environ)
    found: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode == 0) is found["success"], done.stderr
    return found


def test_a_server_is_added_trusted_called_and_removed(tmp_path: Path) -> None:
    shutil.copy(SERVER, tmp_path / "server.py")
    forestay(tmp_path, "add", "probe", "--", "python3", "-I", "-S", "server.py", "drift", "stage")
    (listed,) = forestay(tmp_path, "list")["result"]["servers"]
    assert (listed["state"], listed["pinned"]) == ("unapproved", 0)

    refused = forestay(tmp_path, "call", "probe", "echo", '{"text": "x"}', "--grant", "tool")
    assert refused["error"]["details"]["problem"] == "server_unapproved"
    asked = forestay(tmp_path, "trust", "probe")
    assert asked["error"]["details"]["problem"] == "consent_required"

    trusted = forestay(tmp_path, "trust", "probe", "--yes")["result"]
    assert trusted["pinned"] == ["echo"]
    called = forestay(tmp_path, "call", "probe", "echo", '{"text": "seven"}', "--grant", "tool:probe/echo")["result"]
    assert called["content"][1]["text"] == "seven"

    (tmp_path / "stage").write_text("1")
    inspected = forestay(tmp_path, "inspect", "probe")["result"]
    assert [(item["tool"], item["kind"]) for item in inspected["changes"]] == [("echo", "changed"), ("late", "new")]
    withdrawn = forestay(tmp_path, "call", "probe", "echo", '{"text": "x"}', "--grant", "tool")
    assert withdrawn["error"]["details"]["problem"] == "tool_changed"

    forestay(tmp_path, "remove", "probe")
    assert forestay(tmp_path, "list")["result"]["servers"] == []


def test_doctor_says_which_servers_fail_and_why(tmp_path: Path) -> None:
    def found() -> str:
        done = forked.forestay(tmp_path, "doctor", environ=environ)
        return next(
            str(item["detail"])
            for item in json.loads(done.stdout)["result"]["findings"]
            if item["name"] == "mcp servers"
        )

    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "FORESTAY_DATA_DIR": str(tmp_path / "data")}
    assert found() == "0 configured"
    shutil.copy(SERVER, tmp_path / "server.py")
    forestay(tmp_path, "add", "probe", "--", "python3", "-I", "-S", "server.py", "drift", "stage")
    assert found() == "1 configured; probe: nobody approved it"
    forestay(tmp_path, "trust", "probe", "--yes")
    assert found() == "1 configured, each starts and offers what was pinned"
    (tmp_path / "stage").write_text("1")
    forestay(tmp_path, "add", "missing", "--", "no-such-program")
    told = "2 configured; missing: there is no program no-such-program; probe: echo is changed, late is new"
    assert found() == told
    (tmp_path / "server.py").write_text("raise SystemExit('out of tide')")
    assert found().endswith("probe: The MCP server probe ended. out of tide")


async def _used(folder: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "FORESTAY_DATA_DIR": str(folder / "data")}
    server = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "forestay", "mcp", "serve"], env=environ, cwd=folder
    )
    async with Client(stdio_client(server)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {
            "ask", "start_run", "show_run", "follow_run", "answer_run", "cancel_run", "list_agents", "list_workflows",
            "search_facts", "list_tools", "call_tool",
        }  # fmt: skip
        asked = await client.call_tool("ask", {"question": "What does the note say?", "waitSeconds": 120})
        assert asked.structured_content is not None and asked.structured_content["success"], asked.structured_content
        run = asked.structured_content["result"]
        assert run["status"] == "completed" and run["outputs"]["output"]
        shown = await client.call_tool("follow_run", {"runId": run["runId"]})
        assert shown.structured_content is not None
        kinds = [event["type"] for event in shown.structured_content["result"]["events"]]
        assert kinds[0] == "run.started" and kinds[-1] == "run.completed"
        missing = await client.call_tool("show_run", {"runId": "run_none"})
        assert missing.is_error
        wrong = await client.call_tool("ask", {"question": ""})
        assert wrong.is_error


def test_an_unchanged_client_asks_this_host(tmp_path: Path) -> None:
    import asyncio

    (tmp_path / "note.md").write_text("The note says that the harbour opens at seven.\n")
    asyncio.run(_used(tmp_path))
