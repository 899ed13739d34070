"""W3C trace context: the trace of a request, and the header that passes it on."""

from __future__ import annotations

import re

# version 00: trace id, parent id, flags; an id of zeros is invalid.
_PARENT = re.compile(r"([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def read_traceparent(text: object) -> str | None:
    """Return a well-formed `traceparent` as version 00, else None."""
    if not isinstance(text, str) or len(text) > 512:
        return None
    found = _PARENT.fullmatch(text.strip())
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    return f"00-{found[2]}-{found[3]}-{found[4]}"


def trace_id(traceparent: str) -> str:
    return traceparent[3:35]
