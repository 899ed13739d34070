"""Layer 2 of idempotency: the identity of an effect (OpenWOP §1.5).

- F1  The identity has no attempt in it: a retry of a node asks for the same effect.
- F2  A result is on disk before the node sees it; from then on the effect is never performed again.
- F3  What was not recorded is performed again, under the same identity.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast.kernel import base64url, canonical


def invocation_id(tenant: str, run_id: str, node_id: str, ordinal: str, provider: str) -> str:
    """base64url of the hash over tenant, run, node, logical invocation ordinal and provider key."""
    text = "\0".join(("openwop:activity:v2", tenant, run_id, node_id, ordinal, provider))
    return base64url.encode(hashlib.sha256(text.encode()).digest())


def ordinal_of(iteration: int, key: str) -> str:
    """The logical invocation: the node's iteration and the key that its code gave the effect."""
    return f"{iteration}:{key}"


def plain(value: Any) -> Any:
    """`value` as the log will give it back: JSON and nobody else's."""
    if value is None or isinstance(value, bool | int | str):
        return value
    return msgspec.json.decode(canonical.encode_strict(value))
