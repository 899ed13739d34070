"""Host calls that work of an extension may not make twice, when a process died and the work is begun again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from forestay.extensions.connectors.contract import Output
from forestay.extensions.connectors.ui import DIALOGS
from forestay.extensions.protocol import HostCall

Kind = Literal["answer", "change", "deed", "last"]
"""An `answer` is asked for again when it was not heard. A `change` of the session has a place there. A `deed` may not
be done again. After a `last` one the work cannot be begun again."""

_CHANGES = ("appendEntry", "sendMessage", "sendUserMessage", "setSessionName", "setLabel", "setModel")
_DEEDS = ("navigateTree", "compact")
_LAST = ("newSession", "switchSession", "fork")
_FREE = frozenset(("", "read", "env", "events", "log"))
"""Capabilities whose use leaves nothing behind."""

Perform = Callable[[str | None], Awaitable[Output]]
"""Performs a call, by the name that is its own in every life."""


class CallKeeper(Protocol):
    """Keeps what extensions heard and did, for the work that they do it in."""

    async def once(self, extension: str, call: HostCall, kind: Kind, perform: Perform) -> Output:
        """What `perform` gives, or what it gave in another life."""


def kind_of(call: HostCall, capability: str, *, streams: bool) -> Kind | None:
    """What identifies a call when its work begins again; None: the call may be repeated."""
    operation = call.params.get("op")
    if call.method == "ui":
        return "answer" if operation in DIALOGS else None
    if call.method == "session":
        kinds: dict[Kind, tuple[str, ...]] = {"change": _CHANGES, "deed": _DEEDS, "last": _LAST}
        return next((kind for kind, operations in kinds.items() if operation in operations), None)
    if capability in _FREE:
        return None
    if streams:
        return "last"
    return "answer" if call.method == "model" else "deed"
