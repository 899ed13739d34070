"""`[a2a]` of the settings: remote agents that workflows may give tasks to."""

from __future__ import annotations

import msgspec


class A2aPeer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An A2A agent: the address of its card, and the credential that is sent with each request."""

    url: str
    credential: str = ""


class A2a(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`peers` are agents by the name that nodes use."""

    peers: dict[str, A2aPeer] = {}
