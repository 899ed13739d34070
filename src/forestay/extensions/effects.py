"""Reads what an extension said during one tick, as typed data. It comes from untrusted memory.

Y1  Nothing larger than its limit is read; the size is checked before the bytes are decoded.
Y2  An answer is whole or refused, never cut; a description of an error is cut, and says so.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from forestay.extensions.engine.limits import EngineTrap
from forestay.extensions.outcomes import ToolOutcome
from forestay.kernel import Bounds, bounded

MAX_OUTBOX = 64 * 1024 * 1024
MAX_EFFECTS = 20_000  # of one tick
MAX_ANSWER = 4 * 1024 * 1024  # bytes of one answer, one update, one registration, as JSON
TOO_LARGE = "ANSWER_TOO_LARGE"
MAX_FAILURES = 32  # of one tick that are told one by one
_FEW = 65_536  # bytes of an outbox that no bound can be passed with
_ERROR = Bounds(text=16_384, total=65_536, items=100, depth=8)


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
    """An error that no caller waits for: of a timer, a microtask, an unhandled rejection."""

    where: str
    error: dict[str, Any]


Effect = Call | Cancel | Timer | Clear | Reply | Progress | Registration | Failure
_decoder = msgspec.json.Decoder(list[Effect])
_parts_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_effect_decoder = msgspec.json.Decoder(Effect)
# JSON.stringify writes a lone surrogate as an escape, and nothing else as one in this range.
_LONE_SURROGATE = re.compile(rb"(?<!\\)((?:\\\\)*+)\\ud[89a-f][0-9a-f]{2}")


_ESCAPE = re.compile(rb"(?<!\\)\\")  # where an escape begins
_SLICE = 1024 * 1024


def well_formed(text: bytes) -> bytes:
    """JSON text of which every string is Unicode: half a surrogate pair becomes U+FFFD, as in a TextEncoder.

    A long text is taken in slices, each of which ends where an escape begins: other threads run between them.
    """
    if b"\\ud" not in text:
        return text
    parts, at = [], 0
    while at < len(text):
        found = _ESCAPE.search(text, at + _SLICE)
        end = found.start() if found else len(text)
        parts.append(_LONE_SURROGATE.sub(rb"\1\\ufffd", text[at:end]))
        at = end
    return b"".join(parts)


def read_effects(outbox: bytes) -> list[Effect]:
    """The effects of a tick; what the bridge cannot have written means that the VM is not to be trusted any more."""
    if len(outbox) > MAX_OUTBOX:
        raise EngineTrap("memory", f"the extension said {len(outbox)} bytes in one tick; at most {MAX_OUTBOX} are read")
    try:
        outbox = well_formed(outbox)
        if len(outbox) <= _FEW:
            return [_fitting(effect) for effect in _decoder.decode(outbox)]
        parts = _parts_decoder.decode(outbox)
        if len(parts) > MAX_EFFECTS:
            raise EngineTrap("memory", f"the extension did {len(parts)} things in one tick; at most {MAX_EFFECTS} are")
        return [_read_part(bytes(part)) for part in parts]
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise EngineTrap("engine", f"the bridge said something malformed: {str(error)[:200]}") from error


def _fitting(effect: Effect) -> Effect:
    """The effect, an error's description cut to what may be read of it."""
    if type(effect) is Failure:
        return Failure(effect.where[:128], bounded(effect.error, _ERROR))
    if type(effect) is Reply and not effect.ok:
        return Reply(effect.number, 0, bounded(effect.value, _ERROR))
    return effect


def _read_part(part: bytes) -> Effect:
    """One effect of a large outbox (Y1, Y2)."""
    if len(part) <= MAX_ANSWER or part.startswith((b'["call",', b'["cancel",', b'["timer",', b'["clear",')):
        return _fitting(_effect_decoder.decode(part))
    size = f"{len(part)} bytes; at most {MAX_ANSWER} are taken"
    if part.startswith(b'["reply",'):
        number, ok, value = part[9:-1].split(b",", 2)
        too_large = {"name": "RangeError", "message": f"The answer has {size}.", "stack": "", "code": TOO_LARGE}
        return Reply(int(number), 0, too_large if ok == b"1" else read_error(value))
    if part.startswith(b'["progress",'):
        number = part[12:64].split(b",", 1)[0]
        return Progress(int(number), {"content": [{"type": "text", "text": f"[left out: this update has {size}]"}]})
    if part.startswith(b'["register",'):
        raise EngineTrap("memory", f"the extension registers something of {size}")
    if part.startswith(b'["error",'):
        where, error = part[9:-1].split(b",", 1)
        return Failure(where.strip(b'"').decode("ascii", "replace")[:128], read_error(error))
    raise EngineTrap("engine", "the bridge said something malformed")


class _Described(msgspec.Struct, frozen=True):
    """What is read of an error whose description is very large: its texts, which are then cut."""

    name: str = "Error"
    message: str = ""
    stack: str = ""
    code: str = ""


_described_decoder = msgspec.json.Decoder(_Described)


def read_error(text: bytes) -> dict[str, Any]:
    """What the guest, or the engine, says of something thrown, within bounds (Y2)."""
    try:
        text = well_formed(text)
        if len(text) <= MAX_ANSWER:
            described = msgspec.json.decode(text)
        else:
            described = msgspec.to_builtins(_described_decoder.decode(text))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        told = f"The error was described in {len(text)} bytes that cannot be read."
        return {"name": "RangeError", "message": told, "stack": ""}
    kept = bounded(described, _ERROR)
    return kept if isinstance(kept, dict) else {"name": "Error", "message": str(kept), "stack": ""}


def few(failures: list[Failure]) -> list[Failure]:
    """The first failures of a tick, and how many more there were."""
    if len(failures) <= MAX_FAILURES:
        return failures
    more = f"{len(failures) - MAX_FAILURES} more errors in the same tick are not told one by one."
    return [*failures[:MAX_FAILURES], Failure(failures[-1].where, {"name": "Error", "message": more, "stack": ""})]


class SyncRequest(msgspec.Struct, array_like=True, frozen=True):
    number: int
    method: str
    params: dict[str, Any]
    timeout_ms: int | None
    capability: str


_sync_decoder = msgspec.json.Decoder(SyncRequest)


def read_sync(request: bytes) -> SyncRequest:
    if len(request) > MAX_OUTBOX:
        raise EngineTrap("memory", f"the extension asked in {len(request)} bytes; at most {MAX_OUTBOX} are read")
    try:
        return _sync_decoder.decode(well_formed(request))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise EngineTrap("engine", f"the bridge asked something malformed: {str(error)[:200]}") from error


def read_outcome(value: Any, updates: list[Any]) -> ToolOutcome:
    """A tool answers `{content, details}`; a plain string is taken as text, as the agent would show it.

    Only a tool that throws has failed: the real runtime takes no notice of an `isError` in the answer (P10).
    """
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return ToolOutcome(value["content"], value.get("details"), False, updates)
    if isinstance(value, str):
        return ToolOutcome([{"type": "text", "text": value}], None, False, updates)
    return ToolOutcome([], value, False, updates)
