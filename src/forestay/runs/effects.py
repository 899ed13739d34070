"""Layer 2 of idempotency: the identity of an effect (OpenWOP §1.5).

- F1  The identity has no attempt in it: a retry of a node asks for the same effect.
- F2  A result is on disk before the node sees it; from then on the effect is never performed again.
- F3  What was not recorded is performed again, under the same identity.
"""

from __future__ import annotations

import functools
import hashlib

from forestay.kernel import base64url, canonical

MAX_VALUE_BYTES = 7 * 1024 * 1024
"""A record of the ledger holds two of them: a variable's old value and its new one."""
plain = functools.partial(canonical.plain, limit=MAX_VALUE_BYTES)
"""A value as the log will give it back: a copy, as JSON, and small enough to be written."""


def invocation_id(tenant: str, run_id: str, node_id: str, iteration: int, key: str, provider: str) -> str:
    """base64url of the hash over tenant, run, node, logical invocation ordinal and provider key. The ordinal is the
    node's iteration and the key that its code gave the effect."""
    text = "\0".join(("openwop:activity:v2", tenant, run_id, node_id, f"{iteration}:{key}", provider))
    return base64url.encode(hashlib.sha256(text.encode()).digest())
