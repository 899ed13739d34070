"""The host as an A2A agent: its card at the well-known path is public, its skills at `/a2a` need a key.

B1  Each tenant has its own agent: tasks, runs and answers of one tenant do not exist for another.
B2  The card names what is wired: the skills that `/a2a` performs, and the configured or bound address.
B3  Plain text is a question: an agent answers it in a run, and its plain text is streamed.
B4  A context is a session: a message in it continues the conversation, after a restart too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp

import forestay
from forestay.envelope import CARD_PATH
from forestay.host import Host, skills
from forestay.kernel import canonical, one_line
from forestay.runs import TERMINAL
from forestay.sessions import SessionTree
from forestay.surface.completions.answering import failure, words
from forestay.surface.operations import Call, Operations
from forestay.surface.relayed import Relayed

RPC_PATH = "/a2a"
api = Operations["A2A"](contract="a2a", tag="a2a")


class A2A:
    """The agents of a host, one for each tenant, built on first use (the library is large)."""

    def __init__(self, host: Host, url: str) -> None:
        self._host = host
        self._url = url.rstrip("/")
        self._agents: dict[str, tuple[ASGIApp, ASGIApp]] = {}
        self._one_at_a_time = asyncio.Lock()

    @api.get(CARD_PATH, "a2a.card", dict[str, Any], auth="none")
    async def card(self, call: Call) -> Response:
        """The agent's card: its name, its skills and its address."""
        return Relayed(self._agent("")[0])

    @api.post(
        RPC_PATH,
        "a2a.rpc",
        dict[str, Any],
        scopes=("runs:create", "runs:read"),
        body=dict[str, Any],
        reads_body=False,
        streams=True,  # a message waits for its run's end, with or without a stream
    )
    async def rpc(self, call: Call) -> Response:
        """Messages and tasks as JSON-RPC 2.0."""
        return Relayed(self._agent(call.tenant)[1], call.data)

    def _agent(self, tenant: str) -> tuple[ASGIApp, ASGIApp]:
        """Return the card and the endpoint of a tenant's agent (B1); the tenant "" serves only the card."""
        if tenant not in self._agents:
            from forestay.envelope import Spoken, agent_card, agent_routes

            operations = skills(self._host, tenant)
            card = agent_card(
                operations,
                name="forestay",
                description="Runs workflows and agents with other people's tools, and keeps evidence of everything.",
                version=forestay.__version__,
                url=self._url + RPC_PATH,
                context_ledger=True,
                spoken=True,
            )
            asks = Spoken("agent.ask", "question", _worded, partial(self._heard, tenant))
            shown, called = agent_routes(operations, card, rpc_url=RPC_PATH, spoken=asks)
            self._agents[tenant] = shown.app, called.app
        return self._agents[tenant]

    async def _heard(self, tenant: str, text: str, context: str) -> AsyncGenerator[str, None]:
        """Yield the answer to a text as it is written (B3, B4)."""
        host, spoke = self._host, False
        tree = await self._session(tenant, context)
        run_id = await host.turns.start(tree, text, tenant=tenant, source="rpc", by_person=False)
        async for piece in words(host, tenant, run_id, until_asked=True):
            yield piece
            spoke = True
        run = await host.runs.get_run(run_id, tenant)
        if run.status in TERMINAL and run.status != "completed":
            raise failure(run)
        if not spoke or run.status != "completed":
            yield _worded(msgspec.to_builtins(run))

    async def _session(self, tenant: str, context: str) -> SessionTree:
        name = f"A2A {one_line(context)[:100]}"
        async with self._one_at_a_time:
            return await self._host.sessions.named(name, tenant) or await self._host.sessions.create(tenant, name)


def _worded(run: dict[str, Any]) -> str:
    """Return the answer of a run as text, or a sentence about its status (B3)."""
    if run["status"] == "completed":
        output = (run.get("outputs") or {}).get("output")
        return output if isinstance(output, str) else canonical.encode(output).decode()
    if "error" in run:
        return f"The run {run['runId']} failed: {run['error']['message']}"
    return f"A person is asked first. The run {run['runId']} is {run['status']}; `runs.show` tells how it goes on."
