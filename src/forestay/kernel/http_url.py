"""What counts as the address of an HTTP service: a scheme, a host, no credentials.

The one pattern is what the host takes and what its schemas say, so that a caller can find out before it asks.
"""

from __future__ import annotations

import functools
import re
import socket
from typing import NamedTuple

from forestay.kernel.problems import Problem

MAX_URL = 2048
_GROUP = "[0-9A-Fa-f]{1,4}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_SHORT = "|".join(f"(?:{_GROUP}:){{1,{7 - after}}}(?::{_GROUP}){{{after}}}" for after in range(1, 7))
_V6 = (
    f"(?:{_GROUP}:){{7}}{_GROUP}|(?:{_GROUP}:){{1,7}}:|{_SHORT}|:(?::{_GROUP}){{1,7}}|::"
    rf"|::ffff:{_BYTE}(?:\.{_BYTE}){{3}}"
)
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?"
_PORT = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_REST = r"[!#-;=?-Z\[\]_a-z~]*"  # what a URI may be made of (RFC 3986)
URL_PATTERN = rf"^(https?)://(?:({_NAME})|\[({_V6})\])(?::({_PORT}))?(?:[/?#]{_REST})?$"
_URL = re.compile(URL_PATTERN)


_NUMBERS = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)(?:\.(?:[0-9]+|0x[0-9a-f]*)){0,3}")


class Place(NamedTuple):
    """Where a URL leads: `host` in lower case, without the brackets of an address and without a last dot. An IPv4
    address is four decimal numbers, however the URL spells it."""

    host: str
    port: int
    scheme: str


@functools.lru_cache(maxsize=256)
def place_of(url: str, at: str = "$.url") -> Place:
    """Where `url` leads; `schema_mismatch` when it is no address of an HTTP service."""
    found = _URL.fullmatch(url) if len(url) <= MAX_URL else None
    if found is None:
        raise Problem("schema_mismatch", "The address must be an http(s) URL with a host and no credentials.", at=at)
    scheme, name, literal, port = found.groups()
    host = plain_host(name or literal)
    return Place(host, int(port) if port else 443 if scheme == "https" else 80, scheme)


def plain_host(host: str) -> str:
    """`host` in one spelling: lower case, no last dot, and an IPv4 address as a resolver reads it (`127.1`, `0x7f.1`,
    `2130706433` and `0177.0.0.1` are 127.0.0.1)."""
    host = host.lower().rstrip(".")
    if not _NUMBERS.fullmatch(host):
        return host
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return host
