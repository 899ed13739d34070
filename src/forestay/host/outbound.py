"""Sends the HTTP requests of runs: SSRF-safe, with their credentials attached (OpenWOP RFC 0076 §B, 0079)."""

from __future__ import annotations

from typing import Any

from forestay.governance import Credentials, Use
from forestay.host.egress import Egress
from forestay.kernel import Problem, place_of
from forestay.runs import Caller, EgressDecision, HttpRequest, HttpResponse


class Outbound:
    """The host's `runs.HttpConnector`. It adds a credential only when the request leaves."""

    def __init__(self, egress: Egress, credentials: Credentials) -> None:
        self._egress = egress
        self._credentials = credentials

    @staticmethod
    def capability() -> dict[str, Any]:
        """Return its entries for discovery, beside the node type's own limits."""
        decisions = ["allowed", "denied", "downgraded", "approval-required"]
        return {"safeFetch": {"supported": True}, "egressPolicy": {"supported": True, "decisions": decisions}}

    async def decide(self, request: HttpRequest, caller: Caller) -> EgressDecision:
        assert request.credential is not None, "only a request with a credential needs a decision"
        place = place_of(request.url)
        try:
            self._egress.check_url(request.url, https_only=False)
        except Problem as problem:
            if problem.key != "address_blocked":
                raise
            return EgressDecision("denied", place.host, request.credential, "ssrf-blocked")
        use = Use(request.credential, place, caller.workflow_id, request.approved, request.redirected)
        return await self._credentials.decide(caller.tenant, use)

    async def send(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        attached = await self._credentials.attach(caller.tenant, request, caller.workflow_id)
        return attached.blotted(await self._egress.send(attached.request, caller))
