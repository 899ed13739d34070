"""The names of this host, and the proxies that it trusts.

N1  A request for another name is refused first, so that a page of another site cannot reach a host on this machine by
    pointing its own name here (DNS rebinding). This host's names are the loopback names, the host of `http.public_url`
    and those of `http.hosts`; a plain address counts too if the host listens on more than loopback.
N2  A forwarding header counts only when a proxy of `http.trusted_proxies` sent it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import Request

from forestay.kernel import Http, Problem

_KNOWN_AT_MOST = 64


class HostNames:
    """Decides whether a request is for this host, which listens at `url` (N1)."""

    def __init__(self, settings: Http, url: str) -> None:
        own = (_name(urlsplit(settings.public_url).netloc), *map(_name, settings.hosts))
        self._own = frozenset(filter(None, own))
        self._beyond = not _is_loopback(_name(urlsplit(url).netloc))
        self._admitted: dict[str, bool] = {}

    def check(self, request: Request) -> None:
        """Refuse a request for another host."""
        host = request.headers.get("host")
        if host is None:  # HTTP/1.0: no browser
            return
        admitted = self._admitted.get(host)
        if admitted is None:
            admitted = self._admits(_name(host))
            if len(self._admitted) < _KNOWN_AT_MOST:
                self._admitted[host] = admitted
        if not admitted:
            raise Problem(
                "permission_denied",
                f"{host[:200]!r} is no name of this host.",
                at="Host",
                fix="Set http.public_url to the address that callers use, or name it in http.hosts.",
            )

    def _admits(self, name: str) -> bool:
        return name in self._own or _is_loopback(name) or (self._beyond and _address(name) is not None)


class TrustedProxies:
    """The proxies in front of this host (N2)."""

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [_network(text, number) for number, text in enumerate(networks)]

    def over_tls(self, request: Request) -> bool:
        """Whether a trusted proxy says that its caller came over TLS."""
        if not self._networks or request.client is None:
            return False
        sender = _address(request.client.host)
        if sender is None or not any(sender in network for network in self._networks):
            return False
        said = request.headers.getlist("x-forwarded-proto")
        return len(said) == 1 and said[0].strip().lower() == "https"


def _network(text: str, number: int) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise Problem(
            "config_invalid",
            f"{text[:80]!r} is no address and no network.",
            at=f"http.trusted_proxies[{number}]",
            fix="Write 127.0.0.1 or 10.0.0.0/8.",
        ) from error


def _name(host: str) -> str:
    """Return the name in a `Host` header without its port; empty when it is invalid."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
