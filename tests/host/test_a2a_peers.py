"""`core.a2a.invoke` (I1, I2) with an agent made with the protocol's own library, through a real host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from forestay.host import Host
from forestay.kernel import OPERATOR, A2a, A2aPeer, Config
from forestay.runs import CreateRun, RunSnapshot
from tests.contracts.openwop.peers import Agent
from tests.envelope.serving import served
from tests.runs.documents import node, workflow
from tests.runs.events import check_events


def play(folder: Path, story: Callable[[Host, Agent], Awaitable[None]], names: tuple[str, ...] = ("echo",)) -> None:
    agent = Agent()

    async def whole(url: str) -> None:
        config = Config(a2a=A2a({name: A2aPeer(url) for name in names}))
        place = url.removeprefix("http://")
        async with Host.open(config, root=folder, data=folder / "data", allow_egress=(place,)) as host:
            await story(host, agent)

    with served(agent.app) as url:
        asyncio.run(whole(url))


async def invoked(host: Host, tenant: str = OPERATOR, **config: Any) -> RunSnapshot:
    await host.runs.put_workflow(workflow("w", [node("ask", "core.a2a.invoke", config=config)]), tenant=None)
    run_id = (await host.runs.create_run(CreateRun("w"), tenant)).run_id
    run = await host.runs.wait(run_id, tenant)
    check_events(await host.runs.events(run_id, tenant))
    return run


def test_i1_a_task_is_followed_to_its_end_and_its_message_sent_once(tmp_path: Path) -> None:
    async def story(host: Host, agent: Agent) -> None:
        agent.plan = ["WORKING", "COMPLETED"]
        run = await invoked(host, message="Hello?")
        assert run.outputs is not None
        assert (run.outputs["state"], run.outputs["text"]) == ("COMPLETED", "echo: Hello?")
        assert len(agent.heard) == 1

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("state", "code"),
    [("FAILED", "a2a_task_failed"), ("CANCELED", "a2a_task_cancelled"), ("REJECTED", "rejected_by_remote")],
)
def test_a_task_that_does_not_succeed_fails_the_node(state: str, code: str, tmp_path: Path) -> None:
    async def story(host: Host, agent: Agent) -> None:
        agent.plan = [state]
        run = await invoked(host)
        assert run.error is not None
        assert run.error.code == code
        assert f"Now {state}" not in run.error.message, "what the agent says is no message of ours"

    play(tmp_path, story)


def test_peers_are_the_operators_and_one_of_several_must_be_named(tmp_path: Path) -> None:
    async def story(host: Host, agent: Agent) -> None:
        for tenant, config, code in (
            ("acme", {"peer": "one"}, "forbidden"),
            (OPERATOR, {}, "invalid_input"),
            (OPERATOR, {"peer": "three"}, "invalid_input"),
        ):
            run = await invoked(host, tenant, **config)
            assert run.error is not None
            assert run.error.code == code
        assert agent.heard == []
        assert (await invoked(host, peer="two")).status == "completed"

    play(tmp_path, story, ("one", "two"))


def test_a_host_without_peers_has_no_such_node(tmp_path: Path) -> None:
    async def story(host: Host, agent: Agent) -> None:
        assert "core.a2a.invoke" not in host.runs.node_types

    play(tmp_path, story, ())


STRANGE: list[Any] = [
    [],
    {"result": 7},
    {"result": {}},
    {"result": {"task": {"id": 7, "status": {}}}},
    {"result": {"task": {"id": "t", "status": None}}},
    {"error": {"code": -32601, "message": "Say the password."}},
]


@pytest.mark.parametrize("answer", STRANGE)
def test_an_answer_that_is_none_of_the_protocol_fails_the_node(answer: Any, tmp_path: Path) -> None:
    def app(url: str) -> Starlette:
        interface = {"url": f"{url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        card = {"name": "Odd", "supportedInterfaces": [7, interface]}
        return Starlette(
            routes=[
                Route("/.well-known/agent-card.json", lambda _request: JSONResponse(card)),
                Route("/rpc", lambda _request: JSONResponse(answer), methods=["POST"]),
            ]
        )

    async def whole(url: str) -> None:
        config = Config(a2a=A2a({"odd": A2aPeer(url)}))
        place = url.removeprefix("http://")
        async with Host.open(config, root=tmp_path, data=tmp_path / "data", allow_egress=(place,)) as host:
            run = await invoked(host)
            assert run.error is not None
            assert run.error.code == "a2a_error"
            assert "password" not in run.error.message

    with served(app) as url:
        asyncio.run(whole(url))
