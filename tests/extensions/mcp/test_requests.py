"""What a server asks of the host: every question passes the door of its own subject, and silence costs it nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.memory import create_client_server_memory_streams
from tests.extensions.mcp.world import TOOL, said, used

from forestay.extensions.connectors.ui import NoUi, ScriptedUi, Ui
from forestay.extensions.extensions import Extensions
from forestay.extensions.mcp.connection import Connection, Line
from forestay.extensions.mcp.definitions import Definition
from forestay.extensions.mcp.guest import McpGuest
from forestay.extensions.mcp.requests import MAX_QUESTIONS, ServerRequests
from forestay.kernel import Problem, Record

BERTH = {"type": "object", "properties": {"berth": {"type": "integer"}}, "required": ["berth"]}
ELICIT = {"method": "elicitation/create", "params": {"message": "Which berth?", "requestedSchema": BERTH}}
SAMPLE = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Name a ship."}}],
        "systemPrompt": "Be short.",
        "maxTokens": 40,
    },
}
ROOTS = {"method": "roots/list"}
MANY = {f"f{number}": {"type": "string"} for number in range(40)}


class Speaking:
    """A model that says one thing and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    async def models(self) -> list[Mapping[str, Any]]:
        return [{"id": "one", "provider": "test"}]

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        self.asked.append(request)
        yield {"delta": "Aurora"}
        yield {
            "message": {
                "content": [{"type": "text", "text": "Aurora"}],
                "provider": "test",
                "model": "one",
                "stopReason": "stop",
                "usage": {"input": 6, "output": 4},
            }
        }


def asked(folder: Path, *questions: dict[str, Any], **world: Any) -> tuple[dict[str, Any], list[Record]]:
    """What the server was told about us and answered, and the evidence."""
    found: dict[str, Any] = {}

    async def work(_suite: Extensions, guest: McpGuest) -> None:
        outcome = await guest.call_tool(TOOL, {"text": json.dumps(questions)})
        found.update(json.loads(said(outcome)))

    records = used(folder, "requests", work, **world)
    return found, records


def methods(records: list[Record]) -> list[str]:
    return [record.payload["method"] for record in records if record.type == "host_call.start"]


def test_what_nobody_granted_is_neither_announced_nor_done(tmp_path: Path) -> None:
    found, records = asked(tmp_path, ELICIT, SAMPLE, ROOTS)
    assert not {"elicitation", "sampling", "roots"} & set(found["client"])
    assert all("not supported" in reply["error"]["message"] for reply in found["replies"])
    assert methods(records) == ["tool"]


def test_a_person_answers_a_question(tmp_path: Path) -> None:
    ui = ScriptedUi([{"action": "accept", "content": {"berth": 7, "unasked": {"deep": 1}}}])
    found, records = asked(tmp_path, ELICIT, grants=["tool", "ui"], ui=ui)
    assert found["replies"][0]["result"] == {"action": "accept", "content": {"berth": 7}}
    assert methods(records) == ["tool", "ui"]
    assert ui.calls[0]["message"] == "Which berth?" and "probe" in ui.calls[0]["title"]


NO = [(ScriptedUi([{"action": "decline"}]), "decline"), (ScriptedUi([None]), "cancel"), (NoUi(), "cancel")]


@pytest.mark.parametrize(("ui", "action"), NO)
def test_a_person_may_say_no_or_not_be_there(tmp_path: Path, ui: Ui, action: str) -> None:
    found, _ = asked(tmp_path, ELICIT, grants=["tool", "ui"], ui=ui)
    assert found["replies"][0]["result"]["action"] == action


@pytest.mark.parametrize(
    "params",
    [
        {"message": "x", "requestedSchema": {"type": "object", "properties": {"a": {"type": "object"}}}},
        {"message": "x", "requestedSchema": {"type": "object", "properties": {"a\u202e": {"type": "string"}}}},
        {"message": "x", "requestedSchema": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}},
        {
            "message": "x",
            "requestedSchema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
        },
        {"message": "x", "requestedSchema": {"type": "object", "properties": [1]}},
        {"message": "x" * 40_000, "requestedSchema": BERTH},
        {"message": "x", "requestedSchema": {"type": "object", "properties": MANY}},
    ],
)
def test_a_question_that_cannot_be_shown_is_not_asked(tmp_path: Path, params: dict[str, Any]) -> None:
    ui = ScriptedUi([])
    found, records = asked(tmp_path, {"method": "elicitation/create", "params": params}, grants=["tool", "ui"], ui=ui)
    assert "error" in found["replies"][0] and methods(records) == ["tool"] and not ui.calls


def test_a_model_answers_within_policy_and_budget(tmp_path: Path) -> None:
    model = Speaking()
    found, records = asked(tmp_path, SAMPLE, grants=["tool", "model"], model=model)
    answer = found["replies"][0]["result"]
    assert (answer["content"]["text"], answer["model"], answer["stopReason"]) == ("Aurora", "test/one", "endTurn")
    assert model.asked[0]["options"]["maxTokens"] == 40
    assert model.asked[0]["context"]["systemPrompt"] == "Be short."
    (end,) = [item for item in records if item.type == "host_call.end" and item.payload["method"] == "model"]
    assert end.payload["output_tokens"] == 4


def test_a_loop_of_questions_ends_with_its_budget(tmp_path: Path) -> None:
    model = Speaking()
    found, _ = asked(tmp_path, *[SAMPLE] * 5, grants=["tool", "model"], model=model, max_model_tokens=25)
    assert [("result" in reply) for reply in found["replies"]] == [True, True, True, False, False]
    assert "tokens" in found["replies"][-1]["error"]["message"]


def test_there_is_a_largest_number_of_questions(tmp_path: Path) -> None:
    found, _ = asked(tmp_path, *[ELICIT] * (MAX_QUESTIONS + 1), grants=["tool", "ui"])
    assert [("result" in reply) for reply in found["replies"]] == [True] * MAX_QUESTIONS + [False]


@pytest.mark.parametrize(
    ("grants", "count"), [(["tool", "read"], 1), (["tool", "write"], 1), (["tool", "read:src/**"], 0)]
)
def test_roots_are_the_granted_folders(tmp_path: Path, grants: list[str], count: int) -> None:
    found, _ = asked(tmp_path, ROOTS, grants=grants)
    if count:
        (root,) = found["replies"][0]["result"]["roots"]
        assert root["uri"] == (tmp_path / "project").resolve().as_uri()
    else:
        assert "roots" not in found["client"]


class Inside(Line):
    """A server of this process: time is the test's own."""

    def __init__(self, tool: Callable[[ServerRequestContext[Any]], Awaitable[str]]) -> None:
        self.folders = []

        async def call(
            context: ServerRequestContext[Any], _params: types.CallToolRequestParams
        ) -> types.CallToolResult:
            return types.CallToolResult(content=[types.TextContent(type="text", text=await tool(context))])

        self._server: Server[Any] = Server("inside", on_call_tool=call)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        async with create_client_server_memory_streams() as (ours, theirs):
            task = asyncio.ensure_future(self._server.run(*theirs, self._server.create_initialization_options()))
            yield ours
            task.cancel()

    def failure(self) -> Problem | None:
        return None

    def last_words(self) -> str:
        return ""


async def called(tool: Callable[[ServerRequestContext[Any]], Awaitable[str]], ask: Any) -> str:
    """One call that may be silent for 5 seconds."""
    requests = ServerRequests("inside", ask, lambda _: True)
    connection = Connection(Inside(tool), "inside", requests, seconds=5, on_change=lambda: None)
    await connection.start(5)
    try:
        (block,) = (await connection.call(Definition("any"), {}, seconds=5)).content
        return block.text if isinstance(block, types.TextContent) else ""
    finally:
        await connection.close()


async def test_the_time_of_a_person_is_not_the_servers() -> None:
    async def slow(_method: str, _params: dict[str, Any]) -> Any:
        await asyncio.sleep(3600)
        return {"value": {"action": "accept", "content": {"berth": 7}}}

    async def elicits(context: ServerRequestContext[Any]) -> str:
        answer = await context.session.elicit_form("Which berth?", BERTH)
        await asyncio.sleep(4)
        return str(answer.content)

    async def then_silent(context: ServerRequestContext[Any]) -> str:
        await context.session.elicit_form("Which berth?", BERTH)
        await asyncio.sleep(6)
        return "late"

    assert await called(elicits, slow) == "{'berth': 7}"
    with pytest.raises(Problem) as caught:
        await called(then_silent, slow)
    assert caught.value.key == "timeout"
