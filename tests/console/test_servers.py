"""The page of MCP servers: standing, pins, calls with their times, and what a server changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.conftest import Console
from tests.console.served import served, workflow

SERVER = Path(__file__).parents[1] / "extensions/mcp/server.py"
TOOL = "mcp__probe__echo"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A host with a trusted server that was called twice and then changed its tool, and one that nobody approved."""
    folder = tmp_path_factory.mktemp("servers")
    shutil.copy(SERVER, folder / "server.py")
    drifts = {"command": "python3", "args": ["-I", "-S", "server.py", "drift", "stage"]}
    entries = {"probe": drifts, "other": {"url": "http://127.0.0.1:9/mcp"}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    (folder / "forestay.toml").write_text(
        '[agents]\nallow = ["mcp:probe/echo"]\n[extensions.policy]\ndefault_caps = ["tool:probe/*"]\n'
    )
    trust = [sys.executable, "-P", "-m", "forestay", "mcp", "trust", "probe", "--yes"]
    subprocess.run(trust, cwd=folder, env=dict(os.environ), check=True, capture_output=True, timeout=120)
    with served(folder) as running:
        call = workflow("call", ("t", "core.tool", {"tool": TOOL, "arguments": {"text": "seven"}}))
        assert running.api.put("/v1/workflows/call", json=call).status_code in (200, 201)
        for stage in ("0", "0", "1"):
            (folder / "stage").write_text(stage)
            running.until(running.start("call"), "run.completed", "run.failed")
        visitor = Console(running)
        yield visitor
        visitor.http.close()


def test_each_server_is_shown_as_it_stands(console: Console) -> None:
    page = console.page("/servers")
    panels = {node["aria-label"]: node.text for node in page.all("section")}
    assert list(panels) == ["other", "probe"]
    assert "unapproved" in panels["other"] and "forestay mcp trust other" in panels["other"]
    assert "approved" in panels["probe"] and "python3 -I -S server.py drift stage" in panels["probe"]


def test_pins_and_calls_have_their_figures(console: Console) -> None:
    cells = {cell["data-label"]: cell.text for cell in console.page("/servers").one("tbody").all("td")}
    assert (cells["Tool"], cells["Description"]) == ("echo", "Says it again.")
    assert int(cells["Calls"].split()[0]) >= 2 and cells["Median"].endswith("ms")


def test_what_changed_is_shown_with_its_difference(console: Console) -> None:
    changes = [node.text for node in console.page("/servers").all("details")]
    assert len(changes) == 2 and "late is new" in changes[1]
    assert "echo is changed" in changes[0] and "+" in changes[0] and "id_rsa" in changes[0]


def test_the_page_of_extensions_leads_there(console: Console) -> None:
    links = [node["href"] for node in console.page("/extensions").all("a")]
    assert "/servers" in links
    assert "mcp:probe" in console.page("/extensions/mcp:probe").one("h1").text
