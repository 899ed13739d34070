"""Outbound HTTP calls: the host resolves the address once, checks it, and connects to the checked address.

Invariants:

- E1  Loopback, private, link-local, metadata and all other addresses that are not global are refused, unless the
      operator allowed that host and port by name.
- E2  The connection goes to the checked address: the name is resolved once and its address pinned.
- E3  Redirects are not followed, a request for an upgrade is refused, proxies of the environment are not used.
- E4  Only `https`, or `http` where the operator allowed it; bodies and time are bounded.
- E5  Policy decides: the capability is `egress`, the resource `host:port`. What E1 or E4 refuses needs a grant by name.
      A refused call of a run is recorded in the stream `audit`.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal

import httpx
import msgspec

from forestay.extensions import is_public
from forestay.kernel import (
    AUDIT,
    Decision,
    Draft,
    Grant,
    Ledger,
    Place,
    Policy,
    Problem,
    Request,
    Scope,
    SubjectRules,
    place_of,
)
from forestay.runs import Caller, HttpRequest, HttpResponse

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FORBIDDEN_HEADERS = frozenset(
    {"host", "connection", "upgrade", "transfer-encoding", "content-length", "te", "trailer"}
)
_BLOCKED_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback", "metadata", "metadata.google.internal"})
_BLOCKED_ZONES = (".localhost", ".localdomain", ".internal", ".local")


EGRESS = "egress"
SUBJECT = "host"
_WHY = {
    "plain_http": "The address must begin with https://.",
    "ssrf": "This address is not reachable from here.",
}


class Ruling(msgspec.Struct, frozen=True):
    """The policy's decision about an outbound call, and why the place needs a grant by name."""

    decision: Decision
    why: Literal["plain_http", "ssrf"] | None = None

    def require(self, at: str) -> None:
        if self.why is not None:
            self.decision.require("address_blocked", _WHY[self.why], at=at, reason=self.why)


Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host name, for a port."""


class Egress:
    """An HTTP sender that cannot be talked into reaching the host's own network."""

    def __init__(
        self,
        allow: Collection[str] = (),
        *,
        plain_http: bool = False,
        ledger: Ledger | None = None,
        look_up: Resolver | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`allow` names `host:port` pairs that are allowed although they are not public. `plain_http` permits http to
        public hosts. `ledger` records refused calls. `look_up` replaces the system's resolver, `transport` the
        sockets."""
        named = tuple(Grant(EGRESS, Scope(hosts=(item.lower(),)), source="flag") for item in allow)
        everybody = Grant(EGRESS, source="builtin")
        self._policy = Policy("strict", defaults=[everybody], subjects={SUBJECT: SubjectRules(named)})
        self._plain_http = plain_http
        self._ledger = ledger
        self._transport = transport
        self._look_up = look_up or system_look_up
        self._client: httpx.AsyncClient | None = None

    def decide(self, place: Place, *, https_only: bool = True, addresses: Sequence[str] = ()) -> Ruling:
        """Return the policy's ruling on a call to `place`, given the known `addresses` of its name (E5)."""
        host, port, scheme = place
        why: Literal["plain_http", "ssrf"] | None = None
        if host in _BLOCKED_NAMES or host.endswith(_BLOCKED_ZONES) or not all(map(_is_public, (host, *addresses))):
            why = "ssrf"
        elif scheme == "http" and (https_only or not self._plain_http):
            why = "plain_http"
        request = Request(SUBJECT, EGRESS, scheme, f"{host}:{port}", by_name_only=why is not None)
        return Ruling(self._policy.decide(request), why)

    def check_url(self, url: str, at: str = "$.url", *, https_only: bool = True) -> Place:
        """Return the place of `url`; refuse one that can never be called: checks E1 and E4 without a resolver."""
        place = place_of(url, at)
        self.decide(place, https_only=https_only).require(at)
        return place

    async def send(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        place = host, port, _ = place_of(request.url, "$.url")
        await self._require(self.decide(place, https_only=False), caller)
        if request.method.upper() not in _METHODS:
            raise Problem("schema_mismatch", f"{request.method[:16]!r} is not a method.", at="$.method")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _FORBIDDEN_HEADERS}
        if any(_upgrades(name, value) for name, value in request.headers.items()):
            raise Problem("address_blocked", "A connection upgrade is not allowed.", reason="upgrade")
        try:
            async with asyncio.timeout(request.timeout_ms / 1000):
                addresses = [host] if _is_literal(host) else await self._look_up(host, port)
                # Every address of the name must be allowed, not only the first (E1, E2).
                await self._require(self.decide(place, https_only=False, addresses=addresses), caller)
                return await self._exchange(request, headers, host, addresses[0])
        except (TimeoutError, httpx.TimeoutException) as error:
            raise Problem("timeout", f"{host} did not answer in time.", host=host) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise Problem(
                "upstream_failed", f"{host} could not be reached.", host=host, reason=str(error)[:200]
            ) from error

    async def _require(self, ruling: Ruling, caller: Caller) -> None:
        """Return when the call is allowed; else record the decision and refuse."""
        decision = ruling.decision
        if not decision.allowed and self._ledger is not None:
            said = {"effect": decision.effect, "rule": decision.rule, "reason": decision.reason}
            about = {"runId": caller.run_id, "nodeId": caller.node_id}
            await self._ledger.append(AUDIT, [Draft("policy.decision", {**about, **decision.evidence, **said})])
        ruling.require("$.url")

    async def _exchange(self, request: HttpRequest, headers: dict[str, str], host: str, address: str) -> HttpResponse:
        url = httpx.URL(request.url)
        pinned = url.copy_with(host=address)
        headers = {**headers, "Host": url.netloc.decode(), "Accept-Encoding": "identity"}
        client = self._open()
        extensions = {"sni_hostname": host}
        async with client.stream(
            request.method.upper(), pinned, headers=headers, content=request.body, extensions=extensions
        ) as answer:
            chunks, size = [], 0
            async for chunk in answer.aiter_bytes():
                size += len(chunk)
                if size > request.max_response_bytes:
                    limit, status = request.max_response_bytes, answer.status_code
                    raise Problem("payload_too_large", f"{host} sent too many bytes.", limit=limit, status=status)
                chunks.append(chunk)
            return HttpResponse(status=answer.status_code, headers=dict(answer.headers), body=b"".join(chunks))

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            _hush()
            # No connection is reused: the pool knows addresses, not the names that were checked for them.
            limits = httpx.Limits(max_connections=100, max_keepalive_connections=0)
            self._client = httpx.AsyncClient(
                follow_redirects=False, trust_env=False, limits=limits, timeout=60, transport=self._transport
            )
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def _hush() -> None:
    """Silence the client's own log: it would hold addresses, headers and so credentials."""
    for name in ("httpx", "httpcore"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


async def system_look_up(host: str, port: int) -> list[str]:
    """Return the addresses from the system's resolver; raise a Problem when it knows none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Problem("upstream_failed", f"{host} has no address.", host=host) from error
    return [str(item[4][0]).partition("%")[0] for item in found]


def _upgrades(name: str, value: str) -> bool:
    name = name.lower()
    return name == "upgrade" or (name == "connection" and "upgrade" in value.lower())


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _is_public(host: str) -> bool:
    """Whether an address is public; a name passes here and is checked when it is resolved."""
    return not _is_literal(host) or is_public(ipaddress.ip_address(host))
