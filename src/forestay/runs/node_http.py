"""`NodeHttp`: the requests that a node sends (OpenWOP RFC 0076 §B, 0079).

- N1  Every request goes through the host's SSRF-safe connector. The run's log records it as a pair `agent.toolCalled`,
      `agent.toolReturned`, also when it was blocked; neither has content.
- N2  A node names a credential and never gets its value. The log records the decision about it as `egress.decided`.
- N3  If a person must agree first, the run waits for that person.
- N4  A redirect is a new request: checked, recorded, and with the credential only if it may be sent there too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import msgspec

from forestay.agents import SYSTEM
from forestay.kernel import Problem, canonical, place_of, redact
from forestay.runs.ports import EgressDecision, HttpConnector, HttpRequest

if TYPE_CHECKING:
    from forestay.runs.execution import Execution

TOOL_NAME = "http.safeFetch"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE = ("GET", "HEAD")


class _Unkept(Exception):
    """Carries an answer that is not recorded."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self.answer = answer


def passes_off(status: int) -> bool:
    """Whether the same request may get a better answer later."""
    return status >= 500 or status == 429


class Fetched(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer. `body` is decoded JSON if possible, else text; `url` is the final address."""

    status: int
    headers: dict[str, str]
    body: Any
    url: str


class NodeHttp:
    """The requests of one execution of a node; each is one effect."""

    def __init__(self, ctx: Execution, connector: HttpConnector) -> None:
        self._ctx = ctx
        self._connector = connector
        self._calls = 0

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: Any = None,
        credential: str | None = None,
        timeout_ms: int = 30_000,
        redirects: int = 0,
        key: str | None = None,
        fails: Callable[[int], bool] = lambda status: False,
    ) -> Fetched:
        """Send a request; the host attaches the `credential`.

        At most `redirects` redirects are followed, and only for a method that reads. `key` names the effect, if the
        node has a name for it. A temporary status that `fails` the node is not recorded: the node's next attempt sends
        the request again.
        """
        self._calls += 1
        key, method = key or f"http/{self._calls}", method.upper()
        follows = redirects if method in _SAFE else 0
        for hop in range(follows + 1):
            name = f"{key}-{hop}" if hop else key
            made = _request(method, url, headers, body, self._ctx.caller(name, "http").idempotency_key, timeout_ms)
            request = msgspec.structs.replace(made, credential=credential, redirected=hop > 0)
            answer = await self._exchange(name, request, fails)
            leads = answer["headers"].get("location")
            if hop == follows or answer["status"] not in _REDIRECTS or leads is None:
                break
            url = urljoin(url, leads)
        return Fetched(answer["status"], answer["headers"], answer["body"], url)

    async def _exchange(self, key: str, request: HttpRequest, fails: Callable[[int], bool]) -> dict[str, Any]:
        """Send one request as one effect (N1)."""
        ctx, caller = self._ctx, self._ctx.caller(key, "http")
        agent = str((ctx.agent or {}).get("agentId") or f"node.{ctx.node_id}")
        about = {"agentId": agent, "toolName": TOOL_NAME, "callId": caller.idempotency_key}
        asked = {"argsHash": _hash(request), "principal": caller.principal or SYSTEM, "transport": "http"}
        called = ctx.emit("agent.toolCalled", {**about, **asked})

        async def send() -> dict[str, Any]:
            began = ctx.wall_ms
            try:
                response = await self._connector.send(request, caller)
            except Problem as problem:
                self._refused(request, problem)
                raise
            told = {"durationMs": max(0, ctx.wall_ms - began), "decided": msgspec.to_builtins(response.decided)}
            made = {"status": response.status, "headers": response.headers, "body": body_of(response.body), **told}
            if fails(response.status) and passes_off(response.status):
                raise _Unkept(made)
            return made

        try:
            if request.credential is not None:
                request = await self._cleared(key, request)
            answer: dict[str, Any] = await ctx.effect(key, send, provider="http")
        except _Unkept as unkept:
            answer = unkept.answer
        except Problem as problem:
            ctx.emit("agent.toolReturned", {**about, **failed_call(problem)}, cause=called)
            raise
        if (decided := answer.get("decided")) is not None and decided["decision"] == "downgraded":
            self._tell(msgspec.convert(decided, EgressDecision))
        ctx.emit("agent.toolReturned", {**about, "status": "ok", **_took(answer)}, cause=called)
        return answer

    async def _cleared(self, key: str, request: HttpRequest) -> HttpRequest:
        """Return the request as it may be sent; a Problem when its credential may not be used (N2, N3)."""
        ctx = self._ctx

        async def decide() -> Any:
            return msgspec.to_builtins(await self._connector.decide(request, ctx.caller(key, "http")))

        decision = msgspec.convert(await ctx.effect(f"{key}/egress", decide, later=True), EgressDecision)
        if decision.decision != "downgraded":  # a downgrade is recorded once the request is sent
            self._tell(decision)
        if decision.decision == "denied":
            raise forbidden(decision)
        if decision.decision != "approval-required":
            return request
        if not await self._approved(key, request, decision):
            refused = msgspec.structs.replace(decision, decision="denied", reason="policy-denied")
            self._tell(refused)
            raise forbidden(refused)
        self._tell(msgspec.structs.replace(decision, decision="allowed", reason="ok"))
        return msgspec.structs.replace(request, approved=True)

    async def _approved(self, key: str, request: HttpRequest, decision: EgressDecision) -> bool:
        shown = {
            "artifactId": f"{self._ctx.node_id}/{key}",
            "artifactType": "egress",
            "title": f"May {decision.credential_id} be sent to {decision.destination}?",
        }
        data = {
            **shown,
            "description": f"{request.method} to {decision.destination}, signed with {decision.credential_id}.",
            "actions": ["accept", "reject"],
            "artifactData": {"destination": decision.destination, "credentialId": decision.credential_id},
        }
        announce = ("approval.requested", {**shown, "actions": ["accept", "reject"]})
        answer = await self._ctx.interrupt("approval", data, key=f"{self._ctx.place}{key}/egress", announce=announce)
        return isinstance(answer, dict) and answer.get("action") == "accept"

    def _tell(self, decision: EgressDecision) -> None:
        self._ctx.emit("egress.decided", msgspec.to_builtins(decision), place="egress")

    def _refused(self, request: HttpRequest, problem: Problem) -> None:
        """Record a refusal at sending: the name leads to an internal address, or the credential was revoked."""
        if request.credential is None:
            return
        if problem.key == "address_blocked":
            place = place_of(request.url)
            self._tell(EgressDecision("denied", place.host, request.credential, "ssrf-blocked"))
        elif problem.key == "credential_forbidden":
            self._tell(msgspec.convert(problem.details, EgressDecision))
            tell_expired(self._ctx, problem)


def tell_expired(ctx: Execution, problem: Problem) -> None:
    """Record that a provider no longer renews a credential, if that is the problem (RFC 0047)."""
    if "provider" in problem.details:
        about = {"provider": problem.details["provider"], "credentialRef": problem.details["credentialId"]}
        ctx.emit("connector.auth_expired", {**about, "reason": "refresh_refused"}, place="egress")


def forbidden(decision: EgressDecision, **more: Any) -> Problem:
    """Return the Problem of a credential that may not be sent; its details are the decision."""
    why = {
        "out-of-audience": "it is not meant for that host",
        "expired": "it has expired",
        "scope-denied": "this workflow may not use it",
        "provenance-unevaluable": "there is no such credential, or it cannot be read",
        "policy-denied": "a person refused it",
    }.get(decision.reason or "", "policy refuses it")
    message = f"The credential {decision.credential_id} was not sent to {decision.destination}: {why}."
    return Problem("credential_forbidden", message, **msgspec.to_builtins(decision), **more)


def _request(
    method: str, url: str, headers: dict[str, str] | None, body: Any, idempotency_key: str, timeout_ms: int
) -> HttpRequest:
    """Build a request; a body that is not text becomes JSON, and a server can recognize a repetition by the key."""
    sent = dict(headers or {})
    sent.setdefault("Idempotency-Key", idempotency_key)
    if body is not None and not isinstance(body, str):
        sent.setdefault("Content-Type", "application/json")
    data = None if body is None else body.encode() if isinstance(body, str) else canonical.encode(body)
    return HttpRequest(method=method, url=url, headers=sent, body=data, timeout_ms=timeout_ms)


def body_of(data: bytes) -> Any:
    """Return a body in a form that a run's log can store."""
    try:
        return canonical.decode(data)
    except Problem:
        return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def _took(answer: dict[str, Any]) -> dict[str, Any]:
    return {"durationMs": answer["durationMs"]} if "durationMs" in answer else {}


def _hash(request: HttpRequest) -> str:
    """Return the hash of a request without its secrets (RFC 0064)."""
    body = None if request.body is None else request.body.decode("utf-8", "replace")
    asked = {"url": request.url, "method": request.method, "headers": request.headers, "body": body}
    return canonical.digest(redact(asked))


def failed_call(problem: Problem) -> dict[str, Any]:
    """Return the part of `agent.toolReturned` that describes a failed call."""
    shown = problem.as_openwop()
    status = "forbidden" if problem.row.http == 403 else "rate_limited" if problem.row.http == 429 else "error"
    return {"error": {"code": shown["error"], "message": shown["message"]}, "status": status}
