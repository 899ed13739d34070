"""`[a2a]` of the settings: agents of others that workflows may give tasks to."""

from __future__ import annotations

import msgspec


class A2aPeer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An A2A agent: where its card is, and the credential that goes along."""

    url: str
    credential: str = ""


class A2a(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`peers` are agents by the name that nodes call them."""

    peers: dict[str, A2aPeer] = {}
