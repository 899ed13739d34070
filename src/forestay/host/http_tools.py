"""`fetch` and `send_request`: requests of agents, to the hosts that the settings name (OpenWOP RFC 0076 §B, 0079).

F1  Without hosts in `agents.fetch` there are no such tools. A host that is not named is not reached, redirected or not.
F2  A request goes the way of a node's: the SSRF-safe connector, and a credential that the agent names and never has.
F3  What must be asked about a credential is asked at the gate, before the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urljoin

import msgspec

from forestay.host.outbound import Outbound
from forestay.kernel import Decision, Problem, canonical, object_schema, place_of
from forestay.runs import Caller, EgressDecision, Execution, HttpRequest, HttpResponse, body_of, forbidden, tell_expired
from forestay.tools import Gate, Tool, ToolOutcome, ToolSource, Update

KIND = "http"
_MAX_ANSWER = 200_000  # characters that a model is given
_HOPS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_URL = {"type": "string", "description": "An https address"}
_HEADERS = {"type": "object", "additionalProperties": {"type": "string"}, "description": "Further headers"}
_CREDENTIAL = {"type": "string", "description": "The id of a credential that the host adds, where one is needed"}
_FETCH = Tool(
    "fetch",
    "Read what stands at a web address.",
    object_schema(("url",), url=_URL, headers=_HEADERS, credential=_CREDENTIAL),
    "read",
    f"{KIND}:fetch",
    transport="http",
)
_SEND = Tool(
    "send_request",
    "Send a request that changes something to a web address.",
    object_schema(
        ("url", "method"),
        url=_URL,
        method={"type": "string", "enum": ["POST", "PUT", "PATCH", "DELETE"]},
        headers=_HEADERS,
        body={"description": "The body; what is no text is sent as JSON"},
        credential=_CREDENTIAL,
    ),
    "unsafe",
    f"{KIND}:send_request",
    transport="http",
)


class HttpTools(ToolSource):
    """The tools of one execution of a node; without `ctx` they can only be looked at."""

    kind = KIND

    def __init__(self, outbound: Outbound, hosts: Sequence[str], ctx: Execution | None = None) -> None:
        self._outbound = outbound
        self._hosts = hosts
        self._ctx = ctx

    async def list(self) -> Sequence[Tool]:
        return [_FETCH, _SEND] if self._hosts else []

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        assert self._ctx is not None, "tools are called for a node"
        caller = self._ctx.caller(call_id, KIND)
        request = msgspec.structs.replace(request_of(arguments), approved=True)  # the gate asked (F3)
        for hop in range(_HOPS + 1):
            response = await self._sent(request, caller)
            leads = response.headers.get("location")
            if tool.name != "fetch" or response.status not in _REDIRECTS or leads is None or hop == _HOPS:
                break
            request = msgspec.structs.replace(request, url=urljoin(request.url, leads), redirected=True)
        text = canonical.encode({"status": response.status, "body": body_of(response.body)}).decode()
        return ToolOutcome(text[:_MAX_ANSWER], is_error=response.status >= 400)

    async def _sent(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        assert self._ctx is not None, "tools are called for a node"
        host = place_of(request.url).host
        if not any(fnmatchcase(host, pattern.lower()) for pattern in self._hosts):
            fix = "Name the host in agents.fetch."
            raise Problem("capability_denied", f"Agents may not reach {host}.", host=host, fix=fix)
        try:
            response = await self._outbound.send(request, caller)
        except Problem as problem:
            if problem.key == "credential_forbidden":
                tell(self._ctx, msgspec.convert(problem.details, EgressDecision))
                tell_expired(self._ctx, problem)
            elif problem.key == "address_blocked" and request.credential is not None:
                tell(self._ctx, EgressDecision("denied", host, request.credential, "ssrf-blocked"))
            raise
        if response.decided is not None:
            tell(self._ctx, response.decided)
        return response


class EgressGate:
    """A gate that also asks what becomes of a request's credential, and lets a person decide where one must."""

    def __init__(self, gate: Gate, outbound: Outbound, ctx: Execution) -> None:
        self._gate = gate
        self._outbound = outbound
        self._ctx = ctx

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        decision = await self._gate.decide(tool, arguments)
        if tool.source != KIND or decision.effect == "deny" or not arguments.get("credential"):
            return decision
        egress = await self._outbound.decide(request_of(arguments), self._ctx.caller("gate", KIND))
        about = {**decision.evidence, **msgspec.to_builtins(egress)}
        if egress.decision == "denied":
            tell(self._ctx, egress)
            return Decision("deny", "egress", forbidden(egress).message, about)
        if egress.decision == "approval-required":
            tell(self._ctx, egress)
            reason = f"{egress.credential_id} is sent to {egress.destination} when a person agrees."
            return Decision("prompt", "egress", reason, about)
        return decision


def tell(ctx: Execution, decision: EgressDecision) -> None:
    """Put a decision into the run's log."""
    ctx.emit("egress.decided", msgspec.to_builtins(decision), place="egress")


def request_of(arguments: dict[str, Any]) -> HttpRequest:
    """The request that a tool call's arguments mean."""
    body, headers = arguments.get("body"), dict(arguments.get("headers") or {})
    if body is not None and not isinstance(body, str):
        headers.setdefault("Content-Type", "application/json")
    return HttpRequest(
        method=str(arguments.get("method", "GET")),
        url=arguments["url"],
        headers=headers,
        body=None if body is None else body.encode() if isinstance(body, str) else canonical.encode(body),
        credential=arguments.get("credential") or None,
    )
