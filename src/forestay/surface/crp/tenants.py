"""One relay for many tenants: each sees only its own sessions.

T1  A session belongs to the tenant whose key opened it; for every other tenant it does not exist.
T2  App names are per tenant: two tenants may use the same name, and neither spends the other's limit.
T3  Only the operator may name a provider's address, because the host calls it.
"""

from __future__ import annotations

from typing import Any

from forestay.kernel import OPERATOR, Clock, Problem
from forestay.models import Model
from forestay.relay import Meters, Relay, Role, Session, SessionConfig
from forestay.surface.crp.service import Service

_MARK = "::"


class TenantRelay:
    """One relay as a tenant sees it (T1, T2)."""

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
        """The meters of the whole relay: only the operator sees them."""
        return self._relay.meters if self._tenant == OPERATOR else None

    async def init(
        self,
        app_id: str,
        *,
        role: Role,
        binding_secret: bytes | str | None,
        config: SessionConfig,
        session_id: str | None = None,
    ) -> Session:
        if _MARK in app_id or app_id.startswith(_MARK[0]):
            raise Problem("invalid_request", f"An app's name does not contain {_MARK!r}.", at="$.app_id")
        name = app_id if self._tenant == OPERATOR else f"{self._tenant}{_MARK}{app_id}"
        return await self._relay.init(
            name, role=role, binding_secret=binding_secret, config=config, session_id=session_id
        )

    async def session(self, session_id: str, *, binding_secret: bytes | str | None = None) -> Session:
        found = await self._relay.session(session_id, binding_secret=binding_secret)
        if owner_of(found.warm.app_id) != self._tenant:
            raise Problem("not_found", "There is no such session.", session_id=session_id[:80], fix="Open a session.")
        return found

    async def sessions(self) -> list[dict[str, Any]]:
        rows = await self._relay.sessions()
        return [row for row in rows if owner_of(row["app_id"]) == self._tenant]

    async def import_state(self, data: bytes, passphrase: str, *, binding_secret: str | None) -> Session:
        return await self._relay.import_state(data, passphrase, admits=self._admits, binding_secret=binding_secret)

    def _admits(self, app_id: str) -> None:
        if owner_of(app_id) != self._tenant:
            raise Problem("permission_denied", "The state is of an app that is not yours.", at="$.state")


def owner_of(app_id: str) -> str:
    """Return the tenant that an app belongs to; a name without a mark is the operator's."""
    tenant, mark, _ = app_id.rpartition(_MARK)  # the last mark: a tenant's name may contain it, an app's cannot
    return tenant if mark else OPERATOR


class Sidecars:
    """The sidecar of each tenant of one host."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._services: dict[str, Service] = {}

    def of(self, tenant: str) -> Service:
        if tenant not in self._services:
            mine = TenantRelay(self._relay, tenant)
            self._services[tenant] = Service(mine, auth_required=True, providers=tenant == OPERATOR)
        return self._services[tenant]
