"""Decides which network addresses an extension may reach (P11): resolves a name and checks every address.

Invariants:

- N1  A connection goes to a checked address, never to a name that is resolved a second time.
- N2  A name is refused if any of its addresses is forbidden.
- N3  Private, loopback, link-local and other special addresses need a grant that names the address itself, or
      `localhost` for loopback.
"""

from __future__ import annotations

import ipaddress
import socket
import unicodedata
from collections.abc import Callable

from forestay.kernel import Problem, plain_host

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], list[str]]

_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
_ASSIGNED = ipaddress.ip_network("2000::/3")
_DOCUMENTS = ipaddress.ip_network("3fff::/20")


def resolve_host(host: str, port: int) -> list[str]:
    """Return every address of `host`, in the resolver's order."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Problem("io_failed", f"getaddrinfo ENOTFOUND {host}", errno="ENOTFOUND", host=host) from error
    return list(dict.fromkeys(str(item[4][0]).partition("%")[0] for item in found))


def checked(host: str, port: int, granted: Callable[[str], bool], resolver: Resolver = resolve_host) -> list[str]:
    """Return the addresses of `host`; raise a Problem when any of them is forbidden (N2)."""
    addresses = resolver(host, port)
    if not addresses:
        raise Problem("io_failed", f"getaddrinfo ENOTFOUND {host}", errno="ENOTFOUND", host=host)
    for text in addresses:
        address = ipaddress.ip_address(text)
        if is_public(address) or granted(_plain(address)):
            continue
        if address.is_loopback and is_localhost(host) and granted(host):
            continue
        raise Problem(
            "address_blocked",
            f"{host} is at a private or local address, which is reachable only when a grant names it.",
            host=host,
            address=_plain(address),
            errno="EACCES",
            fix=f"Grant it by name: --grant http:{_plain(address)}",
        )
    return addresses


def is_public(address: Address) -> bool:
    """Whether the address is a normal internet address; an embedded IPv4 address decides for its IPv6 form."""
    inner = embedded(address)
    if inner is not None:
        return is_public(inner)
    if isinstance(address, ipaddress.IPv6Address) and (address not in _ASSIGNED or address in _DOCUMENTS):
        return False  # the library counts site-local and unassigned addresses as global
    return address.is_global and not address.is_multicast and not address.is_reserved


def embedded(address: Address) -> Address | None:
    """The IPv4 address that an IPv6 address carries (mapped, compatible, 6to4, Teredo, NAT64)."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _TRANSLATED or (int(address) >> 32 == 0 and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def canonical_host(host: str) -> str:
    """Return `host` as policy names it: lower case, IPv4 addresses in dotted decimals.

    Full-width letters and digits become plain ones, as in a resolver.
    """
    host = plain_host(unicodedata.normalize("NFKC", host).lstrip("[").rstrip("]."))
    try:
        return _plain(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return host


def is_localhost(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _plain(address: Address) -> str:
    inner = embedded(address)
    return str(address if inner is None else inner)
