"""The host as an A2A agent: its card at the well-known path, for anybody; its skills at `/a2a`, for who has a key.

B1  Each tenant has an agent of its own: tasks, runs and answers of one are nothing to another.
B2  The card names what is wired: the skills that `/a2a` performs, and the address that was configured or bound.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

import forestay
from forestay.envelope import CARD_PATH
from forestay.host import Host, skills
from forestay.surface.answers import Boundary, as_problem, problem_answer, request_id
from forestay.surface.exchange import note_caller, note_route
from forestay.surface.services import Services

RPC_PATH = "/a2a"
_SCOPES = ("runs:create", "runs:read")


class A2A:
    """The agents of a host, one for each tenant, made when somebody first asks (the library is large)."""

    def __init__(self, host: Host, services: Services, url: str) -> None:
        self._host = host
        self._services = services
        self._url = url.rstrip("/")
        self._agents: dict[str, ASGIApp] = {}

    def mounts(self) -> dict[str, ASGIApp]:
        return {CARD_PATH: self, RPC_PATH: self}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, "root_path": ""}
        request = Request(scope, receive)
        try:
            tenant = "" if scope["path"] == CARD_PATH else self._admitted(request)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever it is becomes an answer
            response = problem_answer(request, as_problem(error, request_id(request)), "lafs")
            await response(scope, receive, send)
            return
        note_route(scope, "a2a.rpc" if tenant else "a2a.card")
        await self._agent(tenant)(scope, receive, send)

    def _admitted(self, request: Request) -> str:
        caller = self._services.keys.authenticate(request.headers.get("authorization"))
        note_caller(request.scope, caller)
        self._services.limits.admit(key=caller.key_id, tenant=caller.tenant, route="a2a")
        caller.require(*_SCOPES)
        return caller.tenant

    def _agent(self, tenant: str) -> ASGIApp:
        """B1; the tenant "" is nobody's: it only shows the card."""
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
            routes: list[Any] = agent_routes(operations, card, rpc_url=RPC_PATH)
            mine = routes[1:] if tenant else routes[:1]
            self._agents[tenant] = Boundary(
                Router(mine, redirect_slashes=False), "lafs", clock=self._host.clock, ids=self._host.ids
            )
        return self._agents[tenant]
