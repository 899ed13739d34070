"""An extension's history, read from its evidence: a pure fold over the records of its stream.

V1  A host call is one line, with its start, decision and end; a call without an end says so.
V2  Only the content of the evidence is shown: parameters appear as their hash (Pi §3.4).
V3  Calls that were counted in one record are one line with their number; the sums include each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from forestay.kernel import Record

UNDER_WAY = "under way"
_TRAPS = ("extension.trap", "extension.error", "event_hook.error", "extension.reload_failed", "extension.stopped")


class CallSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One host call: its request, decision and outcome."""

    id: str
    at: int
    capability: str
    method: str
    params_hash: str
    resource: str | None = None
    decision: str = ""
    rule: str = ""
    reason: str = ""
    duration_ms: float | None = None
    outcome: str = UNDER_WAY
    count: int = 1
    """How many calls this line stands for; `at` is the time of the last one."""
    first: int | None = None

    @property
    def allowed(self) -> bool:
        return self.decision in ("allow", "downgrade")

    @property
    def waits(self) -> bool:
        """Whether a person is still being asked."""
        return self.outcome == UNDER_WAY and self.decision in ("", "prompt")


class Trouble(msgspec.Struct, frozen=True):
    """A failure inside the extension."""

    at: int
    kind: str
    message: str


class Use(msgspec.Struct):
    """How often a capability was requested."""

    allowed: int = 0
    refused: int = 0
    last: int = 0


class Seen(msgspec.Struct, frozen=True):
    """The extension's history, latest call first."""

    calls: tuple[CallSeen, ...] = ()
    used: dict[str, Use] = {}
    troubles: tuple[Trouble, ...] = ()
    resolved: dict[str, Any] | None = None
    resolved_at: int | None = None
    ready_at: int | None = None


def seen(records: Iterable[Record]) -> Seen:
    """Fold the records of one extension's stream, oldest first, into its history."""
    calls: list[CallSeen] = []
    running: dict[tuple[str, str], int] = {}  # a later session may use the same id again: the latest start counts
    troubles: list[Trouble] = []
    resolved: Record | None = None
    ready: int | None = None
    for record in records:
        if record.type in _TRAPS:
            troubles.append(_trouble(record))
        elif record.type == "capability.resolve":
            resolved = record
        elif record.type == "extension.ready":
            ready = record.ts
        elif record.type == "host_call.start":
            running[_key(record)] = len(calls)
            calls.append(_begun(record))
        elif record.type == "host_call.repeated":
            calls.append(_repeated(record))
        elif (place := running.get(_key(record))) is not None:
            if record.type == "policy.decision":
                calls[place] = _decided(calls[place], record.payload)
            elif record.type == "host_call.end":
                calls[place] = _ended(calls[place], record.payload)
                del running[_key(record)]
    return Seen(
        tuple(reversed(calls)),
        _uses(calls),
        tuple(reversed(troubles)),
        resolved.payload if resolved is not None else None,
        resolved.ts if resolved is not None else None,
        ready,
    )


def _key(record: Record) -> tuple[str, str]:
    return str(record.attrs.get("session_id", "")), str(record.attrs.get("host_call_id", ""))


def _begun(record: Record) -> CallSeen:
    payload = record.payload
    return CallSeen(
        id=_key(record)[1],
        at=record.ts,
        capability=str(payload.get("capability", "")),
        method=str(payload.get("method", "")),
        params_hash=str(payload.get("params_hash", "")),
    )


def _repeated(record: Record) -> CallSeen:
    call = _ended(_decided(_begun(record), record.payload), record.payload)
    payload = record.payload
    return msgspec.structs.replace(
        call, at=int(payload.get("last", record.ts)), first=payload.get("first"), count=int(payload.get("count", 1))
    )


def _decided(call: CallSeen, payload: dict[str, Any]) -> CallSeen:
    return msgspec.structs.replace(
        call,
        resource=payload.get("resource", call.resource),
        decision=str(payload.get("effect", "")),
        rule=str(payload.get("rule", "")),
        reason=str(payload.get("reason", "")),
    )


def _ended(call: CallSeen, payload: dict[str, Any]) -> CallSeen:
    error = payload.get("error") if payload.get("is_error") else None
    outcome = "ok" if error is None else str(error.get("code", "error"))
    return msgspec.structs.replace(call, duration_ms=payload.get("duration_ms"), outcome=outcome)


def _uses(calls: Iterable[CallSeen]) -> dict[str, Use]:
    found: dict[str, Use] = {}
    for call in calls:
        use = found.setdefault(call.capability, Use())
        use.allowed += call.count if call.allowed else 0
        use.refused += call.count if not call.allowed and not call.waits else 0
        use.last = max(use.last, call.at)
    return found


def _trouble(record: Record) -> Trouble:
    payload = record.payload
    kind = str(payload.get("kind") or payload.get("event") or record.type.rpartition(".")[2])
    return Trouble(record.ts, kind, str(payload.get("message", "")))
