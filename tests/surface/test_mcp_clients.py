"""The MCP support of other people's SDKs, installed from the registry, uses our server at `/mcp`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.served import KEY, served

AGENTS = """
import asyncio, sys
from agents.mcp import MCPServerStreamableHttp
async def main():
    params = {"url": sys.argv[1], "headers": {"Authorization": "Bearer " + sys.argv[2]}}
    async with MCPServerStreamableHttp(params=params, client_session_timeout_seconds=60) as server:
        assert "ask" in {tool.name for tool in await server.list_tools()}
        print(await server.call_tool("call_tool", {"tool": "read", "arguments": {"path": "note.md"}}))
asyncio.run(main())
"""
ANTHROPIC = """
import asyncio, sys, httpx2
from anthropic.lib.tools.mcp import async_mcp_tool
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
async def main():
    headers = {"Authorization": "Bearer " + sys.argv[2]}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(sys.argv[1], http_client=http)) as client:
            tools = {tool.name: async_mcp_tool(tool, client) for tool in (await client.list_tools()).tools}
            print(await tools["call_tool"].call({"tool": "read", "arguments": {"path": "note.md"}}))
asyncio.run(main())
"""
CLIENTS = {"openai-agents": AGENTS, "anthropic[mcp]": ANTHROPIC}


@pytest.mark.sweep
@pytest.mark.parametrize("package", CLIENTS)
def test_a_client_from_the_registry_reads_a_file_through_our_tools(tmp_path: Path, package: str) -> None:
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=120)
    install = [str(place / "bin/pip"), "install", "-q", "--disable-pip-version-check", package]
    subprocess.run(install, check=True, timeout=600)
    project = tmp_path / "project"
    project.mkdir()
    (project / "note.md").write_text("The note says that the harbour opens at seven.\n")
    with served(project) as host:
        command = [str(place / "bin/python"), "-c", CLIENTS[package], f"{host.url}/mcp", KEY]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "opens at seven" in done.stdout


@pytest.mark.sweep
def test_the_inspector_reads_a_file_through_our_tools(tmp_path: Path) -> None:
    """`@modelcontextprotocol/inspector` starts `forestay mcp serve` and calls a tool."""
    install = ["npm", "install", "--no-audit", "--no-fund", "@modelcontextprotocol/inspector"]
    if (
        shutil.which("npm") is None
        or subprocess.run(install, cwd=tmp_path, capture_output=True, timeout=600).returncode
    ):
        pytest.skip("the inspector cannot be installed: it needs npm and its registry")
    project = tmp_path / "project"
    project.mkdir()
    (project / "note.md").write_text("The note says that the harbour opens at seven.\n")
    ours = [str(Path(sys.executable).with_name("forestay")), "mcp", "serve"]
    asked = ["--method", "tools/call", "--tool-name", "call_tool", "--tool-arg", "tool=read"]
    given = ["--tool-arg", 'arguments={"path":"note.md"}']
    command = [str(tmp_path / "node_modules/.bin/mcp-inspector"), "--cli", *ours, *asked, *given]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=True)
    answer = json.loads(done.stdout)
    assert answer["isError"] is False
    assert answer["structuredContent"]["result"]["outputs"]["output"].endswith("opens at seven.\n")
