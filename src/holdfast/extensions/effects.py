"""What an extension said during one tick, as typed data. It comes out of untrusted memory and is read as such."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.extensions.engine.limits import EngineTrap

MAX_OUTBOX = 64 * 1024 * 1024


class Call(msgspec.Struct, array_like=True, tag="call", frozen=True):
    number: int
    method: str
    params: dict[str, Any]
    timeout_ms: int | None
    capability: str


class Cancel(msgspec.Struct, array_like=True, tag="cancel", frozen=True):
    number: int


class Timer(msgspec.Struct, array_like=True, tag="timer", frozen=True):
    number: int
    delay_ms: int


class Clear(msgspec.Struct, array_like=True, tag="clear", frozen=True):
    number: int


class Reply(msgspec.Struct, array_like=True, tag="reply", frozen=True):
    number: int
    ok: int
    value: Any


class Progress(msgspec.Struct, array_like=True, tag="progress", frozen=True):
    number: int
    value: Any


class Registration(msgspec.Struct, array_like=True, tag="register", frozen=True):
    kind: str
    spec: dict[str, Any]


class Failure(msgspec.Struct, array_like=True, tag="error", frozen=True):
    """Something threw where nobody waits for it: a timer, a microtask, an unhandled rejection."""

    where: str
    error: dict[str, Any]


Effect = Call | Cancel | Timer | Clear | Reply | Progress | Registration | Failure
_decoder = msgspec.json.Decoder(list[Effect])
# JSON.stringify writes a lone surrogate as an escape, and nothing else as one in this range.
_LONE_SURROGATE = re.compile(rb"(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}")


def well_formed(text: bytes) -> bytes:
    """JSON text of which every string is Unicode: half a surrogate pair becomes U+FFFD, as in a TextEncoder."""
    return _LONE_SURROGATE.sub(rb"\1\\ufffd", text) if b"\\ud" in text else text


def read_effects(outbox: bytes) -> list[Effect]:
    """The effects of a tick; what the bridge cannot have written means that the VM is not to be trusted any more."""
    if len(outbox) > MAX_OUTBOX:
        raise EngineTrap("memory", f"the extension said {len(outbox)} bytes in one tick; at most {MAX_OUTBOX} are read")
    try:
        return _decoder.decode(well_formed(outbox))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise EngineTrap("engine", f"the bridge said something malformed: {str(error)[:200]}") from error


class SyncRequest(msgspec.Struct, array_like=True, frozen=True):
    number: int
    method: str
    params: dict[str, Any]
    timeout_ms: int | None
    capability: str


_sync_decoder = msgspec.json.Decoder(SyncRequest)


def read_sync(request: bytes) -> SyncRequest:
    try:
        return _sync_decoder.decode(well_formed(request))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise EngineTrap("engine", f"the bridge asked something malformed: {str(error)[:200]}") from error
