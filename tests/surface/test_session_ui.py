"""The interface of extensions over HTTP, as another front end would serve it: `/host/v1/sessions/{id}/ui`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx

from forestay.host import Options
from forestay.models import Script, Scripted, Turn
from forestay.surface.hosting import Serving, serve
from tests.host.test_session_front import harbour

Story = Callable[[Serving, httpx.AsyncClient, str], Awaitable[None]]


def run(folder: Path, story: Story, *turns: Turn) -> None:
    async def whole() -> None:
        models = {"said": Scripted(Script(turns, position="conversation"))}
        options = Options(config=harbour(folder), root=folder, data=folder / ".forestay", models=models)
        async with asyncio.timeout(60), serve(options) as serving:
            await serving.host.extensions.trust.give(serving.host.root)
            headers = {"Authorization": f"Bearer {serving.services.keys.lend()}"}
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False, timeout=30) as http:
                session = (await http.post("/host/v1/sessions")).json()["result"]["sessionId"]
                await story(serving, http, f"/host/v1/sessions/{session}")

    asyncio.run(whole())


async def states(http: httpx.AsyncClient, session: str) -> AsyncIterator[dict[str, Any]]:
    """Each event of the stream is the whole state."""
    async with http.stream("GET", f"{session}/ui/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def until(source: AsyncIterator[dict[str, Any]], fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async for state in source:
        if fits(state):
            return state
    raise AssertionError("the stream ended")


def asks(operation: str) -> Callable[[dict[str, Any]], bool]:
    return lambda state: bool(state["ui"]["dialogs"]) and state["ui"]["dialogs"][0]["operation"] == operation


async def found(http: httpx.AsyncClient, path: str) -> Any:
    return (await http.get(path)).json()["result"]


def test_a_front_end_serves_the_dialogs_of_a_command(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient, session: str) -> None:
        assert (await found(http, f"{session}/commands")) == {"loaded": False, "commands": []}
        async with aclosing(states(http, session)) as source:  # type: ignore[type-var]
            first = await anext(source)
            assert first["ui"]["attended"] is True and first["runId"] is None
            made = await http.post(f"{session}/turns", json={"message": "/berth for two"})
            assert made.status_code == 201
            (dialog,) = (await until(source, asks("select")))["ui"]["dialogs"]
            assert (dialog["extension"], dialog["options"]) == ("harbour", ["north \\x1b[31m", "south"])
            place = f"{session}/ui/{dialog['requestId']}"
            refused = await http.post(place, json={"value": "west"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "E_VALIDATION_SCHEMA")
            assert (await http.post(place, json={"value": "south"})).status_code == 200
            assert (await http.post(place, json={"value": "south"})).status_code == 404, "it was answered"
            for operation, value in (("confirm", True), ("input", "Aurora"), ("editor", "calm\nwind")):
                (dialog,) = (await until(source, asks(operation)))["ui"]["dialogs"]
                assert (await http.post(f"{session}/ui/{dialog['requestId']}", json={"value": value})).is_success
            ended = await until(source, lambda state: state["runId"] is None and bool(state["ui"]["notices"]))
            assert ended["ui"]["notices"][0]["lines"] == ["Moored", "at south"]
        (entry,) = (await found(http, session))["entries"]
        assert entry["data"]["log"] == "calm\nwind" and entry["data"]["chosen"] == "south"
        listed = await found(http, f"{session}/commands")
        assert {"name": "berth", "description": "Choose a berth", "source": "extension"} in listed["commands"]

    run(tmp_path, story)


def test_who_only_looks_is_not_there(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient, session: str) -> None:
        assert (await found(http, f"{session}/ui"))["ui"]["attended"] is False
        made = (await http.post(f"{session}/turns", json={"message": "/berth"})).json()["result"]
        await serving.host.runs.wait(made["runId"], "default")
        (entry,) = (await found(http, session))["entries"]
        assert (entry["data"]["ui"], entry["data"]["sure"], entry["data"]["chosen"]) == (False, False, None)
        assert (await http.get("/host/v1/sessions/nowhere/ui")).status_code == 404
        assert (await http.post(f"{session}/ui/ask_x", json={"value": None})).status_code == 404

    run(tmp_path, story)


def test_ending_a_turn_answers_its_dialogs(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient, session: str) -> None:
        async with aclosing(states(http, session)) as source:  # type: ignore[type-var]
            await http.post(f"{session}/turns", json={"message": "/berth"})
            await until(source, asks("select"))
            assert (await http.post(f"{session}/cancel")).status_code == 200
            state = await until(source, lambda state: state["runId"] is None)
            assert state["ui"]["dialogs"] == []

    run(tmp_path, story)
