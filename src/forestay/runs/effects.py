"""Layer 2 of idempotency: the identity of an effect (OpenWOP §1.5).

- F1  The identity has no attempt in it: a retry of a node asks for the same effect.
- F2  A result is on disk before the node sees it; from then on the effect is never performed again.
- F3  What was not recorded is performed again, under the same identity.
"""

from __future__ import annotations

import hashlib
from typing import Any

from forestay.kernel import Problem, base64url, canonical

MAX_VALUE_BYTES = 7 * 1024 * 1024
"""A record of the ledger holds two of them: a variable's old value and its new one."""


def invocation_id(tenant: str, run_id: str, node_id: str, iteration: int, key: str, provider: str) -> str:
    """base64url of the hash over tenant, run, node, logical invocation ordinal and provider key. The ordinal is the
    node's iteration and the key that its code gave the effect."""
    text = "\0".join(("openwop:activity:v2", tenant, run_id, node_id, f"{iteration}:{key}", provider))
    return base64url.encode(hashlib.sha256(text.encode()).digest())


def plain(value: Any) -> Any:
    """`value` as the log will give it back: a copy, as JSON, and small enough to be written."""
    if value is None or isinstance(value, bool | int):
        return value
    data, copy = (canonical.encode_strict(value), value) if isinstance(value, str) else canonical.encode_plain(value)
    if len(data) > MAX_VALUE_BYTES:
        raise Problem(
            "payload_too_large",
            f"A value of a run may have {MAX_VALUE_BYTES} bytes; this one has {len(data)}.",
            limit=MAX_VALUE_BYTES,
            observed=len(data),
            fix="Keep large data outside and pass its address on.",
        )
    return copy
