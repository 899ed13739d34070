"""Signing in at an MCP server: in the browser for a run, and at the terminal for `mcp trust`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from forestay.extensions import Definition, Pins, read_servers
from forestay.kernel import Ledger
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.console.conftest import Console
from tests.console.served import Served, served, workflow
from tests.extensions.mcp.oauth_server import consent, guarded

PARAMETERS = {"text": {"title": "Text", "type": "string"}}
ECHO = Definition(
    "echo",
    "Says it again.",
    {"type": "object", "properties": PARAMETERS, "required": ["text"], "title": "echoArguments"},
)


def named(folder: Path, url: str) -> None:
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"web": {"url": url}}}))
    (folder / "forestay.toml").write_text(
        '[agents]\nallow = ["mcp:web/echo"]\n[extensions.policy]\ndefault_caps = ["tool:web/*"]\n'
    )


@contextmanager
def waiting(folder: Path) -> Iterator[tuple[Served, str]]:
    """A host whose run waits for a person to sign in at the server that it calls."""

    async def pin() -> None:
        (folder / ".forestay").mkdir()
        async with Ledger.open(folder / ".forestay" / "ledger.db") as ledger:
            server = read_servers(folder, {}).named("web")
            pins = Pins(ledger, folder)
            await pins.approve(server)
            await pins.pin(server, [ECHO])

    with guarded() as (url, _):
        named(folder, url)
        asyncio.run(pin())
        with served(folder) as running:
            call = workflow("call", ("t", "core.tool", {"tool": "mcp__web__echo", "arguments": {"text": "seven"}}))
            assert running.api.put("/v1/workflows/call", json=call).status_code in (200, 201)
            run_id = running.start("call")
            running.until(run_id, "interrupt.requested")
            yield running, run_id


def test_the_browser_comes_back_to_the_run_that_waits(tmp_path: Path) -> None:
    with waiting(tmp_path) as (running, run_id):
        visitor = Console(running)
        (interrupt,) = running.api.get(f"/v1/runs/{run_id}/interrupts").json()["interrupts"]
        back = urlsplit(consent(interrupt["data"]["artifactData"]["open"]))
        assert back.path == "/signed-in"
        landing = running.api.get(f"/signed-in?{back.query}", headers={"accept": "text/html"}, auth=None)
        assert (
            landing.status_code == 200 and f'href="/inbox/signed-in?{back.query.replace("&", "&amp;")}"' in landing.text
        )
        page = visitor.page(f"/inbox/signed-in?{back.query}")
        assert "Sign in at 127.0.0.1 for the MCP server web" in page.one("main").text
        assert "No run of yours" in visitor.page("/inbox/signed-in?code=x&state=guessed").one("main").text
        (form,) = [node for node in page.all("form") if "/inbox/" in node.attributes.get("action", "")]
        fields = {node["name"]: node["value"] for node in form.all("input")}
        visitor.http.post(form["action"], data={**fields, "action": "edit-accept"})
        running.until(run_id, "run.completed", "run.failed")
        assert running.api.get(f"/v1/runs/{run_id}").json()["status"] == "completed"
        visitor.http.close()


def test_trust_signs_in_at_the_terminal(tmp_path: Path) -> None:
    with guarded() as (url, authority):
        named(tmp_path, url)
        person = PseudoTerminal(tmp_path, "mcp", "trust", "web")
        try:
            person.expect(re.escape("Let web be started like this? [y/N]"))
            person.type("y")
            shown = person.expect(r"http://\S+/authorize\?\S+")
            person.expect("address.*: ")
            person.type(consent(shown[0]))
            person.expect("Send this")
            person.type("y")
            person.expect("Pin the tools of web")
            person.type("y")
            person.expect("3 tools are pinned")  # its own, and the two that lead to resources
            assert person.end() == 0
        finally:
            person.close()
        assert authority.given == ["code"]
