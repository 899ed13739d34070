"""The sidecar beside the other surfaces: the host's keys open it, and each tenant sees its own sessions alone.

M1  Without a key only what the contract calls open is answered; a key needs `runs:read` to look and `runs:create` to
    change anything. Naming a provider's address is the operator's alone: it makes the host call there.
M2  A session belongs to the tenant whose key opened it; to everybody else it does not exist.
M3  An app's name is the tenant's own: two tenants may use the same, and neither spends the other's limit.
"""

from __future__ import annotations

from typing import Any, cast

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from forestay.http.answers import as_problem, problem_answer, request_id
from forestay.http.auth import Caller
from forestay.http.crp.app import crp_app
from forestay.http.crp.operations import OPERATIONS
from forestay.http.exchange import note_caller
from forestay.http.services import Services
from forestay.kernel.clock import Clock
from forestay.kernel.config import OPERATOR
from forestay.kernel.problems import Problem
from forestay.models.protocol import Model
from forestay.relay import Relay, Session
from forestay.relay.meters import Meters

_MARK = "::"
_OPEN = frozenset(item.path for item in OPERATIONS if item.open)


class TenantRelay:
    """One relay as a tenant sees it (M2, M3)."""

    def __init__(self, relay: Relay, tenant: str) -> None:
        self._relay = relay
        self._tenant = tenant

    @property
    def clock(self) -> Clock:
        return self._relay.clock

    @property
    def model(self) -> Model | None:
        return self._relay.model

    @property
    def meters(self) -> Meters | None:
        """What the whole relay did is the operator's to see."""
        return self._relay.meters if self._tenant == OPERATOR else None

    async def init(self, app_id: str, **options: Any) -> Session:
        if _MARK in app_id or app_id.startswith(_MARK[0]):
            raise Problem("invalid_request", f"An app's name does not contain {_MARK!r}.", at="$.app_id")
        name = app_id if self._tenant == OPERATOR else f"{self._tenant}{_MARK}{app_id}"
        return await self._relay.init(name, **options)

    async def session(self, session_id: str, **options: Any) -> Session:
        found = await self._relay.session(session_id, **options)
        if owner_of(found.warm.app_id) != self._tenant:
            raise Problem("not_found", "There is no such session.", session_id=session_id[:80], fix="Open a session.")
        return found

    async def sessions(self) -> list[dict[str, Any]]:
        rows = await self._relay.sessions()
        return [row for row in rows if owner_of(row["app_id"]) == self._tenant]

    async def import_state(self, data: bytes, passphrase: bytes | str, **options: Any) -> Session:
        return await self._relay.import_state(data, passphrase, admits=self._admits, **options)

    def _admits(self, app_id: str) -> None:
        if owner_of(app_id) != self._tenant:
            raise Problem("permission_denied", "The state is of an app that is not yours.", at="$.state")


def owner_of(app_id: str) -> str:
    """The tenant that an app belongs to; a name without a mark is the operator's."""
    tenant, mark, _ = app_id.rpartition(_MARK)  # the last one: a tenant's name may hold it, an app's cannot
    return tenant if mark else OPERATOR


class Mounted:
    """The sidecar for every tenant of one host."""

    def __init__(self, relay: Relay, services: Services) -> None:
        self._relay = relay
        self._services = services
        self._apps: dict[str, ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        scope["forestay.clock"], scope["forestay.ids"] = self._services.clock, self._services.ids
        try:
            tenant = OPERATOR if path in _OPEN else self._admitted(request).tenant
        except Exception as error:  # noqa: BLE001 - the boundary: whatever it is becomes an answer
            response = problem_answer(request, as_problem(error, request_id(request)), "crp")
            await response(scope, receive, send)
            return
        await self._app(tenant)(scope, receive, send)

    def _admitted(self, request: Request) -> Caller:
        """M1."""
        caller = self._services.keys.authenticate(request.headers.get("authorization"))
        note_caller(request.scope, caller)
        self._services.limits.admit(key=caller.key_id, tenant=caller.tenant, route="crp")
        caller.require("runs:read" if request.method in ("GET", "HEAD") else "runs:create")
        return caller

    def _app(self, tenant: str) -> ASGIApp:
        if tenant not in self._apps:
            mine = cast(Relay, TenantRelay(self._relay, tenant))
            self._apps[tenant] = crp_app(mine, trusted=True, providers=tenant == OPERATOR)
        return self._apps[tenant]
