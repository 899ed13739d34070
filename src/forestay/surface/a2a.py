"""The host as an A2A agent: its card at the well-known path, open to everybody; its skills at `/a2a`, with a key.

B1  Each tenant has an agent of its own: tasks, runs and answers of one tenant do not exist for another.
B2  The card names what is wired: the skills that `/a2a` performs, and the address that was configured or bound.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp

import forestay
from forestay.envelope import CARD_PATH
from forestay.host import Host, skills
from forestay.surface.operations import Call, Operations
from forestay.surface.relayed import Relayed

RPC_PATH = "/a2a"
api = Operations["A2A"](contract="a2a", tag="a2a")


class A2A:
    """The agents of a host, one for each tenant, made when they are first asked (the library is large)."""

    def __init__(self, host: Host, url: str) -> None:
        self._host = host
        self._url = url.rstrip("/")
        self._agents: dict[str, tuple[ASGIApp, ASGIApp]] = {}

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
        """The card and the endpoint of a tenant's agent (B1); the tenant "" only shows the card."""
        if tenant not in self._agents:
            from forestay.envelope import agent_card, agent_routes

            operations = skills(self._host, tenant)
            card = agent_card(
                operations,
                name="forestay",
                description="Runs workflows and agents with other people's tools, and keeps evidence of everything.",
                version=forestay.__version__,
                url=self._url + RPC_PATH,
                context_ledger=True,
            )
            shown, called = agent_routes(operations, card, rpc_url=RPC_PATH)
            self._agents[tenant] = shown.app, called.app
        return self._agents[tenant]
