"""`/mcp`: the unchanged official client uses a real host, with keys and scopes as everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.console.served import KEY, Served, review, served, workflow

HELLO = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "note.md").write_text("The note says that the harbour opens at seven.\n")
    with served(folder) as made:
        assert made.api.put("/v1/workflows/review", json=review("Publish?")).status_code in (200, 201)
        yield made


@asynccontextmanager
async def client(host: Served, key: str = KEY) -> Any:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(f"{host.url}/mcp", http_client=http)) as made,
    ):
        yield made


def result(answer: Any) -> dict[str, Any]:
    assert answer.structured_content is not None and answer.structured_content["success"], answer
    found: dict[str, Any] = answer.structured_content["result"]
    return found


def listed(answer: Any) -> list[dict[str, Any]]:
    found: Any = result(answer)
    return list(found)


def limited(host: Served, *scopes: str) -> str:
    made = host.api.post("/host/v1/keys", json={"name": "limited", "scopes": list(scopes)})
    assert made.status_code in (200, 201), made.text
    return str(made.json()["result"]["apiKey"])


def test_an_unchanged_client_asks_starts_answers_and_cancels(host: Served) -> None:
    async def story() -> None:
        heard: list[str | None] = []

        async def progress(_at: float, _total: float | None, message: str | None) -> None:
            heard.append(message)

        async with client(host) as used:
            assert "start_run" in {tool.name for tool in (await used.list_tools()).tools}
            asked = await used.call_tool(
                "ask", {"question": "What does the note say?", "waitSeconds": 60}, progress_callback=progress
            )
            assert result(asked)["status"] == "completed" and "run.completed" in heard
            waiting = result(await used.call_tool("start_run", {"workflowId": "review", "waitSeconds": 30}))
            assert [item["nodeId"] for item in waiting["questions"]] == ["approve"]
            answer = {"runId": waiting["runId"], "nodeId": "approve", "value": {"action": "accept"}}
            assert result(await used.call_tool("answer_run", answer))["status"] == "completed"
            second = result(await used.call_tool("start_run", {"workflowId": "review", "waitSeconds": 30}))
            await used.call_tool("cancel_run", {"runId": second["runId"]})
            shown = result(await used.call_tool("show_run", {"runId": second["runId"]}))
            assert shown["status"] in ("cancelled", "cancelling")

    asyncio.run(story())


def test_a_tool_of_the_host_is_called_through_its_gate(host: Served) -> None:
    """`read` is allowed to everybody; `write` asks a person, and the question is answered over MCP too."""

    async def story() -> None:
        async with client(host) as used:
            offered = {item["title"] for item in listed(await used.call_tool("list_tools", {}))}
            assert {"read", "write"} <= offered
            read = result(await used.call_tool("call_tool", {"tool": "read", "arguments": {"path": "note.md"}}))
            assert read["status"] == "completed" and "opens at seven" in str(read["outputs"])
            given = {"tool": "write", "arguments": {"path": "new.md", "content": "x"}, "waitSeconds": 30}
            asked = result(await used.call_tool("call_tool", given))
            assert [item["nodeId"] for item in asked["questions"]] == ["tool"]
            answer = {"runId": asked["runId"], "nodeId": "tool", "value": {"action": "reject"}}
            assert result(await used.call_tool("answer_run", answer))["status"] == "failed"
            gone = result(await used.call_tool("call_tool", {"tool": "nothing"}))
            assert gone["status"] == "failed" and "There is no tool nothing" in str(gone["error"])

    asyncio.run(story())


def test_a_conversation_is_held_in_a_session_and_its_words_come_as_they_are_said(host: Served) -> None:
    async def story() -> None:
        heard: list[str | None] = []

        async def progress(_at: float, _total: float | None, message: str | None) -> None:
            heard.append(message)

        async with client(host) as used:
            first = {"question": "When does the harbour open?", "sessionId": "new", "waitSeconds": 60}
            begun = result(await used.call_tool("ask", first, progress_callback=progress))
            answer = begun["outputs"]["output"]
            assert "opens at seven" in answer and begun["sessionId"]
            said = [text for text in heard if text is not None and "." not in text.partition(" ")[0]]
            assert "".join(said) == answer, heard
            more = {**first, "question": "What does the note say?", "sessionId": begun["sessionId"]}
            again = result(await used.call_tool("ask", more))
            assert again["sessionId"] == begun["sessionId"] and again["status"] == "completed"
        shown = host.api.get(f"/host/v1/sessions/{begun['sessionId']}").json()["result"]
        said = [item["message"]["role"] for item in shown["entries"] if item["type"] == "message"]
        assert said.count("user") == 2 and said.count("assistant") >= 2

    asyncio.run(story())


def test_a_tool_may_do_what_the_key_of_its_caller_may(host: Served) -> None:
    key = limited(host, "runs:read")

    async def story() -> None:
        async with client(host, key) as used:
            refused = await used.call_tool("start_run", {"workflowId": "review"})
            assert refused.is_error and "runs:create" in str(refused.structured_content)

    asyncio.run(story())
    assert host.api.get("/v1/runs").status_code == 200


@pytest.mark.parametrize("key", ["", "Bearer wrong-key-123456"])
def test_without_a_key_of_this_host_nothing_is_said(host: Served, key: str) -> None:
    headers = {**ACCEPT, **({"Authorization": key} if key else {})}
    assert httpx.post(f"{host.url}/mcp", json=HELLO, headers=headers, trust_env=False).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:1234"}, 200),
        ({"Host": "localhost:1234", "Origin": "http://localhost:1234"}, 200),
        ({"Host": "localhost.evil.example"}, 403),
    ],
)
def test_a_page_of_another_site_reaches_nothing(host: Served, headers: dict[str, str], status: int) -> None:
    answer = host.api.post("/mcp", json=HELLO, headers={**ACCEPT, **headers})
    assert answer.status_code == status, answer.text


def test_there_is_no_session_to_listen_to_or_to_end(host: Served) -> None:
    assert [host.api.get("/mcp").status_code, host.api.delete("/mcp").status_code] == [405, 405]


def test_a_message_that_is_none_is_refused_and_the_next_one_answered(host: Served) -> None:
    for body in (b"", b"[", b'{"jsonrpc": "1.0"}', b"[" * 5000, b"5"):
        answer = host.api.post("/mcp", content=body, headers={**ACCEPT, "Content-Type": "application/json"})
        assert 400 <= answer.status_code < 500, (body[:20], answer.text)
    large = b'{"a": "' + b"x" * 2_000_000 + b'"}'
    assert host.api.post("/mcp", content=large, headers=ACCEPT).status_code == 413
    assert host.api.post("/mcp", json=HELLO, headers=ACCEPT).status_code == 200


def test_a_call_that_waits_does_not_keep_the_host_from_ending(tmp_path: Path) -> None:
    async def story(host: Served, ends: Callable[[], None]) -> None:
        document = workflow("slow", ("wait", "core.delay", {"delayMs": 600_000}))
        assert host.api.put("/v1/workflows/slow", json=document).status_code in (200, 201)
        begun = asyncio.Event()

        async def progress(_at: float, _total: float | None, _message: str | None) -> None:
            begun.set()

        async with client(host) as used:
            waits = {"workflowId": "slow", "waitSeconds": 300}
            waiting = asyncio.create_task(used.call_tool("start_run", waits, progress_callback=progress))
            await begun.wait()
            ending = asyncio.create_task(asyncio.to_thread(ends))
            answer = await waiting
            assert answer.is_error and answer.structured_content["error"]["retryable"]
            await ending

    with ExitStack() as stack:
        host = stack.enter_context(served(tmp_path))
        asyncio.run(story(host, stack.close))
