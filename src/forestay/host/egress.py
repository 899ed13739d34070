"""Calls out of the host: the address is resolved once, checked, and the connection goes to what was checked.

Invariants:

- E1  Loopback, private, link-local, metadata and every other address that is not global is refused, unless the
      operator allowed that host and port by name.
- E2  What is connected to is what was checked: the name is resolved once and its address pinned.
- E3  Redirects are not followed, upgrades are not asked for, proxies of the environment are not used.
- E4  Only `https`, or `http` where the operator allowed the host; bodies and time are bounded.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection

import httpx

from forestay.extensions import is_public
from forestay.kernel import Place, Problem, place_of
from forestay.runs import Caller, HttpRequest, HttpResponse

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FORBIDDEN_HEADERS = frozenset(
    {"host", "connection", "upgrade", "transfer-encoding", "content-length", "te", "trailer"}
)
_BLOCKED_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback", "metadata", "metadata.google.internal"})
_BLOCKED_ZONES = (".localhost", ".localdomain", ".internal", ".local")


class Egress:
    """An HTTP sender that cannot be talked into reaching the host's own network."""

    def __init__(self, allow: Collection[str] = (), *, plain_http: bool = False) -> None:
        """`allow` names `host:port` pairs that may be reached though they are not public. `plain_http` permits http
        to public hosts."""
        self._allow = frozenset(item.lower() for item in allow)
        self._plain_http = plain_http
        self._client: httpx.AsyncClient | None = None

    def check_url(self, url: str, at: str = "$.url", *, https_only: bool = True) -> Place:
        """Where `url` leads; refused when it could never be called: the part of E1 and E4 that needs no resolver."""
        place = host, port, scheme = place_of(url, at)
        if self._is_allowed(host, port):
            return place
        if scheme == "http" and (https_only or not self._plain_http):
            raise Problem("address_blocked", "The address must begin with https://.", at=at, reason="plain_http")
        if host in _BLOCKED_NAMES or host.endswith(_BLOCKED_ZONES):
            raise Problem("address_blocked", "This host is not reachable from here.", at=at, reason="ssrf")
        if _is_literal(host):  # a name is checked when it is resolved
            _check_address(ipaddress.ip_address(host), at)
        return place

    async def send(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        host, port, _ = self.check_url(request.url, https_only=False)
        if request.method.upper() not in _METHODS:
            raise Problem("schema_mismatch", f"{request.method[:16]!r} is not a method.", at="$.method")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _FORBIDDEN_HEADERS}
        if any(name.lower() == "upgrade" for name in request.headers):
            raise Problem("address_blocked", "A connection upgrade is not allowed.", reason="upgrade")
        try:
            async with asyncio.timeout(request.timeout_ms / 1000):
                address = await self._resolve(host, port)
                return await self._exchange(request, headers, host, address)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise Problem("timeout", f"{host} did not answer in time.", host=host) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise Problem(
                "upstream_failed", f"{host} could not be reached.", host=host, reason=str(error)[:200]
            ) from error

    async def _resolve(self, host: str, port: int) -> str:
        """The address to connect to (E1, E2): all that the name means must be allowed, not only the first."""
        addresses = [host] if _is_literal(host) else await _look_up(host, port)
        if not self._is_allowed(host, port):
            for address in addresses:
                _check_address(ipaddress.ip_address(address))
        return addresses[0]

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
                    raise Problem("payload_too_large", f"{host} sent too much.", limit=limit, status=status)
                chunks.append(chunk)
            return HttpResponse(status=answer.status_code, headers=dict(answer.headers), body=b"".join(chunks))

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            # No connection is used twice: the pool knows addresses, not the names that were checked for them.
            limits = httpx.Limits(max_connections=100, max_keepalive_connections=0)
            self._client = httpx.AsyncClient(follow_redirects=False, trust_env=False, limits=limits, timeout=60)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _is_allowed(self, host: str, port: int) -> bool:
        return f"{host}:{port}" in self._allow


async def _look_up(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Problem("upstream_failed", f"{host} has no address.", host=host) from error
    return [str(item[4][0]).partition("%")[0] for item in found]


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address, at: str = "$.url") -> None:
    if not is_public(address):
        raise Problem("address_blocked", "This address is not reachable from here.", at=at, reason="ssrf")
