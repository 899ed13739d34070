"""A person's decision about an extension, in force at once and on the ledger for the next start.

W1  The decision is a record before it is in force.
W2  Taking back takes exactly what people decided; what the configuration says stays.
W3  A folder outside the project that a grant names is opened when the extension is loaded the next time.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.extensions.grants import Grants, checked
from holdfast.host.opening import Host
from holdfast.kernel.policy import Grant

SOURCE = "person"


def grant_of(capability: str, scope: str, expires_ms: int | None) -> Grant:
    """What a form or a request says, checked: `scope` is a list of patterns with commas between them."""
    text = f"{capability}:{scope.strip()}" if scope.strip() else capability
    return msgspec.structs.replace(checked(text), expires_ms=expires_ms, source=SOURCE)


async def decide(host: Host, extension: str, effect: Literal["allow", "deny"], grant: Grant, *, by: str) -> None:
    """Allow or deny `grant` to the extension from now on (W1)."""
    grants = Grants(host.ledger, host.clock)
    same = [
        item.grant
        for item in await grants.standing(extension)
        if (item.grant.capability, item.grant.scope) == (grant.capability, grant.scope)
    ]
    await (grants.allow if effect == "allow" else grants.deny)(extension, grant, by=by)
    suite = host.extensions.opened
    if suite is None:
        return  # the suite reads the ledger when it opens
    policy = suite.dispatcher.policy.without(extension, allow=same, deny=same)  # the latest decision holds
    change = policy.allowing if effect == "allow" else policy.denying
    suite.dispatcher.policy = change(extension, grant)


async def take_back(host: Host, extension: str, capability: str, *, by: str) -> int:
    """Undo what people decided about one capability of the extension; how many decisions that were (W2)."""
    grants = Grants(host.ledger, host.clock)
    held = [item for item in await grants.standing(extension) if item.grant.capability == capability]
    count = await grants.revoke(extension, capability, by=by)
    suite = host.extensions.opened
    if suite is not None:
        suite.dispatcher.policy = suite.dispatcher.policy.without(
            extension,
            allow=[item.grant for item in held if item.effect == "allow"],
            deny=[item.grant for item in held if item.effect == "deny"],
        )
    return count
