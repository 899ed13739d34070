"""What counts as the address of an HTTP service: a scheme, a host, no credentials.

The one pattern is what the host takes and what its schemas say, so that a caller can find out before it asks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.kernel.problems import Problem

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


class Place(NamedTuple):
    """Where a URL leads: `host` in lower case, without the brackets of an address and without a last dot."""

    host: str
    port: int
    scheme: str


def place_of(url: str, at: str = "$.url") -> Place:
    """Where `url` leads; `schema_mismatch` when it is no address of an HTTP service."""
    found = _URL.fullmatch(url) if len(url) <= MAX_URL else None
    if found is None:
        raise Problem("schema_mismatch", "The address must be an http(s) URL with a host and no credentials.", at=at)
    scheme, name, literal, port = found.groups()
    host = (name or literal).rstrip(".").lower()
    return Place(host, int(port) if port else 443 if scheme == "https" else 80, scheme)
