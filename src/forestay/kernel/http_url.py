"""Which URLs count as the address of an HTTP service: a scheme, a host, no credentials.

One pattern serves the host's own check and its schemas, so that a caller can check an address before it sends one.
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
_REST = r"[!#-;=?-Z\[\]_a-z~]*"  # the characters of a URI (RFC 3986)
URL_PATTERN = rf"^(https?)://(?:({_NAME})|\[({_V6})\])(?::({_PORT}))?(?:[/?#]{_REST})?$"
_URL = re.compile(URL_PATTERN)


_NUMBERS = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)(?:\.(?:[0-9]+|0x[0-9a-f]*)){0,3}")


class Place(NamedTuple):
    """The target of a URL: `host` is in lower case, without brackets and without a last dot.

    An IPv4 address is four decimal numbers, however the URL spells it.
    """

    host: str
    port: int
    scheme: str


@functools.lru_cache(maxsize=256)
def place_of(url: str, at: str = "$.url") -> Place:
    """Return the target of `url`; `schema_mismatch` when it is not the address of an HTTP service."""
    found = _URL.fullmatch(url) if len(url) <= MAX_URL else None
    if found is None:
        raise Problem("schema_mismatch", "The address must be an http(s) URL with a host and no credentials.", at=at)
    scheme, name, literal, port = found.groups()
    host = plain_host(name or literal)
    return Place(host, int(port) if port else 443 if scheme == "https" else 80, scheme)


def plain_host(host: str) -> str:
    """Return `host` in one spelling: lower case, no last dot, an IPv4 address as four decimal numbers.

    It reads an IPv4 address as a resolver does: `127.1`, `0x7f.1`, `2130706433` and `0177.0.0.1` are 127.0.0.1.
    """
    host = host.lower().rstrip(".")
    if not _NUMBERS.fullmatch(host):
        return host
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return host
