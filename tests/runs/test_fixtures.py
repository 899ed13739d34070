"""The contract's workflow fixtures that this host does not list, with what each waits for.

Those that it lists are driven over HTTP in tests/contracts/openwop/test_fixtures.py. Here stand two node types with
doubles for a model that decides and for an MCP server, which shows what the nodes do and claims nothing of a fixture.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forestay.models import Script, Scripted, Turn
from forestay.runs.check import check_workflow
from forestay.runs.nodes.core import standard_registry
from forestay.runs.ports import Caller
from forestay.runs.types import CreateRun
from forestay.surface.openwop.fixtures import is_done
from tests.contracts.openwop.documents import node, workflow
from tests.runs.conftest import Host
from tests.runs.documents import finish
from tests.runs.events import CONTRACT, check_events

FIXTURES = CONTRACT / "fixtures"
ROOT = Path(__file__).parents[2]
needs_contract = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the contract's fixtures are not at hand")

# What a fixture that is not listed waits for, by its id.
WAITS: dict[str, str] = {}


def documents() -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(FIXTURES.glob("*.json"))] if FIXTURES.is_dir() else []


def test_what_waits_is_never_listed() -> None:
    assert not [name for name in WAITS if is_done(name, seams=True, asks=True)]
    assert not is_done("conformance-phase4-replay-divergence", seams=True), "only where replays ask models again"


@needs_contract
def test_every_fixture_is_listed_or_says_what_it_waits_for() -> None:
    names = {document["id"] for document in documents()}
    assert len(names) == 82
    assert {name for name in names if not is_done(name, seams=True, asks=True)} == WAITS.keys()


def test_the_page_of_rules_lists_what_each_fixture_waits_for() -> None:
    page = (ROOT / "docs" / "reference" / "openwop-rules.md").read_text("utf-8").partition("## Fixtures")[2]
    assert dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \|$", page, re.MULTILINE)) == WAITS
    assert "each does what its description says" in page


@needs_contract
def test_a_fixture_that_pins_a_channel_is_refused_where_there_are_no_deployments() -> None:
    (document,) = (item for item in documents() if item["id"] == "conformance-agent-channel-dispatch")
    _, found = check_workflow(document, standard_registry())
    assert [item["at"] for item in found.errors] == ["$.nodes[0].agent.channel"]


class Deciding:
    """A model that sends one worker and then is content."""

    def __init__(self) -> None:
        self.decisions = [{"kind": "next-worker", "nextWorkerIds": ["worker"]}, {"kind": "terminate", "reason": "done"}]

    def chosen(self, provider: str | None, name: str | None) -> Scripted:
        return Scripted(Script((Turn(json.dumps(self.decisions.pop(0))),)))


class Echo:
    """A tool source with one tool."""

    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller) -> Any:
        return {"content": [{"type": "text", "text": f"{tool}: {arguments['text']}"}]}

    def names(self) -> list[str]:
        return ["echo"]


async def test_a_supervisor_without_a_plan_asks_the_model_until_it_is_content(host: Host) -> None:
    edges = [
        {"id": "e1", "sourceNodeId": "lead", "targetNodeId": "send"},
        {"id": "e2", "sourceNodeId": "send", "targetNodeId": "lead"},
    ]
    lead, send = node("lead", "core.orchestrator.supervisor"), node("send", "core.dispatch")
    async with host(models=Deciding()) as runs:
        await runs.put_workflow(workflow("worker", node("a", "core.noop")), tenant=None)
        await runs.put_workflow(workflow("loop", lead, send, edges=edges), tenant=None)
        run_id = (await runs.create_run(CreateRun(workflow_id="loop"), "acme", "alice")).run_id
        assert (await finish(runs, run_id)).status == "completed"
        events = await runs.events(run_id, "acme")
        check_events(events)
        decided = [item.payload["decision"]["kind"] for item in events if item.type == "runOrchestrator.decided"]
        assert decided == ["next-worker", "terminate"]
        (child,) = {item.payload["childRunId"] for item in events if item.type == "node.dispatched"}
        assert (await runs.get_run(child, "acme")).status == "completed"


async def test_what_an_mcp_tool_says_is_untrusted(host: Host) -> None:
    call = node("call", "core.ai.callPrompt", {"mcp": {"tool": "echo", "arguments": {"text": "probe"}}})
    async with host(models=Deciding(), tools=Echo()) as runs:
        await runs.put_workflow(workflow("mcp", call), tenant=None)
        run_id = (await runs.create_run(CreateRun(workflow_id="mcp"), "acme", "alice")).run_id
        run = await finish(runs, run_id)
        text = {"type": "text", "text": "mcp:*/echo: probe"}
        assert run.outputs == {"result": {"content": [text]}, "contentTrust": "untrusted"}
        events = await runs.events(run_id, "acme")
        check_events(events)
        told = {item.type: item.payload for item in events if item.type.startswith("agent.tool")}
        called, returned = told["agent.toolCalled"], told["agent.toolReturned"]
        assert (called["transport"], called["toolName"], called["callId"]) == ("mcp", "echo", returned["callId"])
        assert returned["contentTrust"] == "untrusted"
