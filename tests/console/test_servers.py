"""The page of MCP servers: standing, pins, calls with their times, and what a server changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.console.conftest import Console
from tests.console.served import Served, served, workflow
from tests.forked import forestay

SERVER = Path(__file__).parents[1] / "extensions/mcp/server.py"
TOOL = "mcp__probe__echo"


@contextmanager
def drifted(folder: Path) -> Iterator[Served]:
    """A host with a trusted server that was called twice and then changed its tool, and one that nobody approved."""
    shutil.copy(SERVER, folder / "server.py")
    drifts = {"command": "python3", "args": ["-I", "-S", "server.py", "drift", "stage"]}
    entries = {"probe": drifts, "other": {"url": "http://127.0.0.1:9/mcp"}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    (folder / "forestay.toml").write_text(
        '[agents]\nallow = ["mcp:probe/echo"]\n[extensions.policy]\ndefault_caps = ["tool:probe/*"]\n'
    )
    assert forestay(folder, "mcp", "trust", "probe", "--yes").returncode == 0
    with served(folder) as running:
        call = workflow("call", ("t", "core.tool", {"tool": TOOL, "arguments": {"text": "seven"}}))
        assert running.api.put("/v1/workflows/call", json=call).status_code in (200, 201)
        for stage in ("0", "0", "1"):
            (folder / "stage").write_text(stage)
            running.until(running.start("call"), "run.completed", "run.failed")
        yield running


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with drifted(tmp_path_factory.mktemp("servers")) as running:
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


def field(console: Console, panel: str, name: str) -> str:
    """A hidden field in the panel of a server."""
    (section,) = [node for node in console.page("/servers").all("section") if node["aria-label"] == panel]
    return next(str(node["value"]) for node in section.all("input") if node["name"] == name)


def test_a_person_approves_looks_pins_and_takes_back(tmp_path: Path) -> None:
    shutil.copy(SERVER, tmp_path / "server.py")
    entry = {"command": "python3", "args": ["-I", "-S", "server.py", "drift", "stage"]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"probe": entry}}))
    with served(tmp_path) as running:
        visitor = Console(running)
        visitor.send("/servers/probe/approve", 409, fingerprint="sha256:other")
        visitor.send("/servers/probe/look", 403)
        visitor.send("/servers/probe/approve", fingerprint=field(visitor, "probe", "fingerprint"))
        visitor.send("/servers/probe/look")
        assert [node.text.split(":")[0] for node in visitor.page("/servers").all("summary")] == ["echo is new"]
        visitor.send("/servers/probe/pin", 409, offer="sha256:other")
        shown = field(visitor, "probe", "offer")
        (tmp_path / "stage").write_text("1")
        visitor.send("/servers/probe/pin", 409, offer=shown)  # it is not what was shown any more
        (tmp_path / "stage").write_text("0")
        visitor.send("/servers/probe/pin", offer=shown)
        assert [node.text for node in visitor.page("/servers").all("td.strong")] == ["echo"]
        visitor.send("/servers/probe/withdraw")
        page = visitor.page("/servers")
        assert "unapproved" in page.one("section").text and page.all("tbody") == []
        visitor.send("/servers/none/approve", 404, fingerprint="x")
        visitor.http.close()


def test_deciding_needs_the_scope_and_the_token(console: Console) -> None:
    made = console.running.api.post("/host/v1/keys", json={"name": "looks", "scopes": ["audit:read", "manifest:read"]})
    visitor = Console(console.running, made.json()["result"]["apiKey"])
    visitor.page("/servers")
    for action in ("approve", "look", "pin", "withdraw"):
        visitor.send(f"/servers/probe/{action}", 403)
        assert console.http.post(f"/servers/probe/{action}", data={"csrf": "no"}).status_code == 403
    visitor.http.close()
