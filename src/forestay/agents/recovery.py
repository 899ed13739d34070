"""What to do with an effect that was begun and not recorded when the process died: its class decides."""

from __future__ import annotations

from typing import Literal

from forestay.agents.ports import EffectClass


def recover(cls: EffectClass, idempotency_key: str | None) -> Literal["again", "ask"]:
    """`pure` and `read` run again, `write` with a key runs again under that key, everything else asks a person."""
    if cls in ("pure", "read"):
        return "again"
    return "again" if cls == "write" and idempotency_key is not None else "ask"
