"""A person's decision about an extension: on the ledger, and in force before the answer is given.

W1  The decision is a record before it is in force; a running suite takes it in from the record.
W2  Taking back takes exactly what people decided; what the configuration says stays.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from forestay.extensions import Grants, checked
from forestay.host.opening import Host
from forestay.kernel import Grant

SOURCE = "person"


def grant_of(capability: str, scope: str, expires_ms: int | None) -> Grant:
    """What a form says, checked: `scope` is a list of patterns with commas between them."""
    patterns = ",".join(part.strip() for part in scope.split(",") if part.strip())
    text = f"{capability}:{patterns}" if patterns else capability
    return msgspec.structs.replace(checked(text), expires_ms=expires_ms, source=SOURCE)


async def decide(host: Host, extension: str, effect: Literal["allow", "deny"], grant: Grant, *, by: str) -> None:
    """Allow or deny `grant` to the extension from now on (W1)."""
    grants = Grants(host.ledger, host.clock)
    await (grants.allow if effect == "allow" else grants.deny)(extension, grant, by=by)
    await _take_in(host)


async def take_back(host: Host, extension: str, capability: str, *, by: str) -> int:
    """Undo what people decided about one capability of the extension; how many decisions that were (W2)."""
    count = await Grants(host.ledger, host.clock).revoke(extension, capability, by=by)
    await _take_in(host)
    return count


async def _take_in(host: Host) -> None:
    if host.extensions.opened is not None:  # a suite that is opened later reads the ledger then
        await host.extensions.opened.refresh()
