"""forestay: an agent host that you can trust with other people's code.

This is the public interface for programs; each name is imported on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name; importing `typing` would cost more than the rest of this file

__version__ = "0.2.0"

_FROM = {
    "AsyncClient": "forestay.client",
    "Client": "forestay.client",
    "Extensions": "forestay.extensions",
    "Host": "forestay.host",
    "Ledger": "forestay.kernel",
    "NodeContext": "forestay.runs",
    "NodeError": "forestay.runs",
    "Policy": "forestay.kernel",
    "Problem": "forestay.kernel",
    "Relay": "forestay.relay",
    "failure": "forestay.envelope",
    "node": "forestay.runs",
    "success": "forestay.envelope",
    "workflow": "forestay.runs",
}

if TYPE_CHECKING:
    from forestay.client import AsyncClient, Client
    from forestay.envelope import failure, success
    from forestay.extensions import Extensions
    from forestay.host import Host
    from forestay.kernel import Ledger, Policy, Problem
    from forestay.relay import Relay
    from forestay.runs import NodeContext, NodeError, node, workflow

__all__ = [
    "AsyncClient",
    "Client",
    "Extensions",
    "Host",
    "Ledger",
    "NodeContext",
    "NodeError",
    "Policy",
    "Problem",
    "Relay",
    "failure",
    "node",
    "success",
    "workflow",
]


def __getattr__(name: str) -> object:
    if name not in _FROM:
        raise AttributeError(f"module 'forestay' has no attribute {name!r}")
    import importlib

    found = globals()[name] = getattr(importlib.import_module(_FROM[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_FROM])
