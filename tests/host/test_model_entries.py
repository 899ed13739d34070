"""Models of the settings, asked by everybody who can ask: agents, the relay, nodes and extensions; and by name only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from forestay.host import Host
from forestay.host.extension_model import ExtensionModel
from forestay.kernel import Config, ModelEntry, Models
from forestay.runs import CreateRun, RunSnapshot
from tests.models.wire import Reply, Server, serving
from tests.runs.documents import node, workflow


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    story: Callable[[Host, Server], Coroutine[Any, Any, None]],
    *texts: str,
) -> None:
    monkeypatch.setenv("ROUTER_KEY", "sk-router")

    async def whole() -> None:
        async with serving(*(Reply((text,)) for text in texts)) as server:
            server.key = "sk-router"
            router = ModelEntry(
                model="vendor/large", base_url=server.openai, api_key_env="ROUTER_KEY", context_window=40_000
            )
            small = ModelEntry(model="vendor/small", base_url=server.openai, api_key_env="ROUTER_KEY")
            unset = ModelEntry(model="vendor/none", base_url=server.openai, api_key_env="KEY_THAT_NOBODY_SET")
            settings = Models(default="router", entries={"router": router, "small": small, "unset": unset})
            async with Host.open(Config(models=settings), root=tmp_path, data=tmp_path / "d") as host:
                await story(host, server)

    asyncio.run(whole())


async def finished(host: Host, request: CreateRun) -> RunSnapshot:
    run_id = (await host.runs.create_run(request, "default")).run_id
    async for _ in host.runs.follow(run_id, "default"):
        pass
    return await host.runs.get_run(run_id, "default")


def test_an_agent_the_relay_and_an_extension_ask_the_keyed_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(host: Host, server: Server) -> None:
        done = await finished(host, CreateRun("forestay-ask", inputs={"question": "Where?"}))
        assert done.outputs is not None
        assert done.outputs["output"] == "From the agent."
        reply = await (await host.relay.init("one")).dispatch("", "Where?")
        assert reply.output == "From the relay."
        assert reply.report.telemetry is not None
        assert reply.report.telemetry.model == "router:vendor/large"
        extension = ExtensionModel(host.models)
        offered = {item["id"]: item for item in await extension.models()}
        assert list(offered) == ["vendor/large", "vendor/small"], "a model without its key is not offered"
        assert offered["vendor/large"]["contextWindow"] == 40_000
        named = {"model": {"provider": "small", "id": "vendor/small"}, "context": {"messages": [{"content": "hi"}]}}
        answers = [item async for item in extension.stream(named)]
        assert answers[-1]["message"]["content"] == [{"type": "text", "text": "From the extension."}]
        assert [item["model"] for item in server.requests] == ["vendor/large", "vendor/large", "vendor/small"]

    run(tmp_path, monkeypatch, story, "From the agent.", "From the relay.", "From the extension.")


@pytest.mark.parametrize(
    ("named", "asked"),
    [
        ({}, "vendor/large"),
        ({"model": "small"}, "vendor/small"),
        ({"model": "vendor/small"}, "vendor/small"),
        ({"model": "small:vendor/small"}, "vendor/small"),
        ({"provider": "small"}, "vendor/small"),
        ({"provider": "small", "model": "vendor/small"}, "vendor/small"),
    ],
)
def test_a_node_asks_the_model_that_it_names(
    named: dict[str, str], asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(host: Host, server: Server) -> None:
        document = workflow("w", [node("n", "core.ai.callPrompt", config={"prompt": "Where?", **named})])
        await host.runs.put_workflow(document, tenant=None)
        done = await finished(host, CreateRun("w"))
        assert done.status == "completed", done.error
        assert [item["model"] for item in server.requests] == [asked]

    run(tmp_path, monkeypatch, story, "Here.")


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"model": "gpt-17"}, "model_unknown"),
        ({"provider": "openai"}, "model_unknown"),
        ({"provider": "router", "model": "vendor/small"}, "model_unknown"),
        ({"model": "unset"}, "credential_forbidden"),
    ],
)
def test_a_node_that_names_a_model_which_is_not_there_fails_and_no_other_answers(
    named: dict[str, str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(host: Host, server: Server) -> None:
        document = workflow("w", [node("n", "core.ai.callPrompt", config={"prompt": "Where?", **named})])
        await host.runs.put_workflow(document, tenant=None)
        done = await finished(host, CreateRun("w"))
        assert done.status == "failed"
        assert done.error is not None
        assert done.error.code == code
        assert server.requests == []

    run(tmp_path, monkeypatch, story, "Here.")
