"""Decides how much of an envelope is shown: MVI levels, `_fields`, one field (R32 to R36, R11, D1, D2).

- P1  `_meta` and `success` are always there; `error` whenever the operation failed.
- P2  `page` and the result of a failed operation are never dropped (D2).
- P3  A projection is valid in the schema of its level; `full` is valid in the envelope schema (D1).
- P4  Projecting twice is projecting once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from forestay.envelope.types import Envelope, Meta, Mvi
from forestay.kernel import Problem

_META: dict[str, frozenset[str]] = {
    "minimal": frozenset(("requestId", "contextVersion", "sessionId", "warnings")),
    "standard": frozenset(("requestId", "contextVersion", "sessionId", "warnings", "timestamp", "operation", "mvi")),
}
MINIMAL_ERROR = ("code", "agentAction", "retryAfterMs", "details", "escalationRequired")


def project(envelope: Envelope | Mapping[str, Any], level: Mvi) -> dict[str, Any]:
    """Return the envelope at a level, as plain JSON. `custom` is full: its fields were chosen before (R36)."""
    whole: dict[str, Any] = msgspec.to_builtins(envelope) if isinstance(envelope, Envelope) else dict(envelope)
    meta = {**whole["_meta"], "mvi": level}
    if level not in _META:
        return {**whole, "_meta": meta}
    shown = whole
    if level == "minimal":
        shown = {key: value for key, value in whole.items() if not _needless(key, value, whole["success"])}
    shown = {**shown, "_meta": {key: value for key, value in meta.items() if key in _META[level]}}
    if level == "minimal" and isinstance(shown.get("error"), Mapping):
        shown["error"] = _minimal_error(shown["error"])
    return shown


def select_fields(envelope: Envelope, fields: Sequence[str]) -> Envelope:
    """Keep the named members of each entity in the result; ignore a name that no entity has (R36)."""
    wanted = frozenset(fields)
    meta = msgspec.structs.replace(envelope.meta, mvi="custom")
    result = envelope.result
    if isinstance(result, list):
        result = [_pick(item, wanted) for item in result]
    elif isinstance(result, dict):
        result = _pick_wrapped(result, wanted)
    return msgspec.structs.replace(envelope, meta=meta, result=result)


def select_field(result: object, field: str) -> Any:
    """Return the value that `--field` asks for: from the result, or from its first entity that has the field."""
    for entity in _entities(result):
        if field in entity:
            return entity[field]
    raise Problem(
        "not_found",
        f"The result has no field {field[:80]!r}.",
        at=f"$.result.{field[:80]}",
        known=sorted({name for entity in _entities(result) for name in entity})[:100],
        fix="Use one of the fields in `known`.",
    )


def meta_members(level: Mvi) -> frozenset[str]:
    """Return the members of `_meta` that a level shows."""
    everything = frozenset(field.encode_name for field in msgspec.structs.fields(Meta))
    return _META.get(level, everything)


def _needless(key: str, value: Any, success: bool) -> bool:
    """R35: whether `minimal` omits the member; the result of a failed operation always stays (D2)."""
    return key == "$schema" or (value is None and (key == "error" or (key == "result" and success)))


def _minimal_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """R34: return the code and what an agent needs to act on it, without empty members."""
    return {name: error[name] for name in MINIMAL_ERROR if error.get(name) not in (None, {})}


def _pick(item: Any, wanted: frozenset[str]) -> Any:
    return {key: value for key, value in item.items() if key in wanted} if isinstance(item, dict) else item


def _pick_wrapped(result: dict[str, Any], wanted: frozenset[str]) -> dict[str, Any]:
    """An object that has a wanted member is the entity; otherwise it wraps entities, one level down (R36)."""
    if wanted & result.keys() or not _wraps(result):
        return _pick(result, wanted)  # type: ignore[no-any-return]
    shown: dict[str, Any] = {}
    for key, value in result.items():
        if isinstance(value, dict):
            shown[key] = _pick(value, wanted)
        elif isinstance(value, list):
            shown[key] = [_pick(item, wanted) for item in value]
        else:
            shown[key] = value
    return shown


def _wraps(result: Mapping[str, Any]) -> bool:
    return any(isinstance(entity, dict) for value in result.values() for entity in _as_items(value))


def _as_items(value: Any) -> Iterable[Any]:
    if isinstance(value, list):
        return value
    return (value,) if isinstance(value, dict) else ()


def _entities(result: object) -> Iterable[Mapping[str, Any]]:
    if isinstance(result, list):
        yield from (item for item in result if isinstance(item, dict))
    elif isinstance(result, dict):
        yield result
        for value in result.values():
            yield from (item for item in _as_items(value) if isinstance(item, dict))
