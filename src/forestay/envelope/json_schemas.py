"""JSON Schemas, generated from the types: the full envelope, and what each disclosure level shows (D1).

What the types cannot say (R13, R14, R16 and the page modes) is added here as `if`/`then`; the same rules stand in
`validate.check`, and a property test compares the two.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from forestay.envelope.disclosure import MINIMAL_ERROR, meta_members
from forestay.envelope.types import SCHEMA_URL, Envelope, Mvi

_PAGE_NEEDS = {"cursor": ["nextCursor", "hasMore"], "offset": ["limit", "offset", "hasMore"]}


def schemas() -> dict[str, dict[str, Any]]:
    """Return every schema of the contract, by name."""
    from forestay.envelope.conformance import Report
    from forestay.envelope.context.types import LedgerDocument

    return {
        "envelope": envelope_schema(),
        "envelope-minimal": projected_schema("minimal"),
        "envelope-standard": projected_schema("standard"),
        "context-ledger": _document(LedgerDocument),
        "conformance-report": _document(Report),
    }


def envelope_schema() -> dict[str, Any]:
    """Return the schema of a full envelope; it accepts what the contract's schema accepts."""
    schema = _generated()
    members = schema["properties"]
    schema["$id"] = SCHEMA_URL
    schema["allOf"] = [
        *_success_and_error(),
        {
            "if": {"properties": {"_meta": {"properties": {"strict": {"const": True}}}}},
            "then": {"properties": dict.fromkeys(members, True), "additionalProperties": False},
        },
    ]
    return schema


def projected_schema(level: Mvi) -> dict[str, Any]:
    """Return the schema of an envelope at `level`; `full` and `custom` are whole envelopes."""
    if level in ("full", "custom"):
        return envelope_schema()
    schema = _generated()
    schema["title"] = "ProjectedEnvelope"
    shown = meta_members(level)
    _keep(schema["$defs"]["Meta"], shown)
    if level == "minimal":
        schema["required"] = ["_meta", "success"]
        error = schema["$defs"]["Error"]
        _keep(error, frozenset(MINIMAL_ERROR))
        error["required"] = ["code"]
        error["additionalProperties"] = False
    schema["allOf"] = [
        *_success_and_error(),
        {  # D2: a failed operation's result is shown at every level
            "if": {"properties": {"success": {"const": False}}},
            "then": {"required": ["result"]},
        },
    ]
    return schema


def _document(type: Any) -> dict[str, Any]:
    raw = copy.deepcopy(msgspec.json.schema(type))
    definitions: dict[str, Any] = raw["$defs"]
    own = definitions.pop(type.__name__)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **own, "$defs": definitions}


def _generated() -> dict[str, Any]:
    schema = _document(Envelope)
    definitions = schema["$defs"]
    definitions["Page"]["allOf"] = [
        {"if": {"properties": {"mode": {"const": mode}}}, "then": {"required": needed}}
        for mode, needed in _PAGE_NEEDS.items()
    ]
    return schema


def _success_and_error() -> list[dict[str, Any]]:
    return [
        {
            "if": {"properties": {"success": {"const": True}}},
            "then": {"properties": {"error": {"type": "null"}}},
        },
        {
            "if": {"properties": {"success": {"const": False}}},
            "then": {"required": ["error"], "properties": {"error": {"type": "object"}}},
        },
    ]


def _keep(schema: dict[str, Any], names: frozenset[str]) -> None:
    schema["properties"] = {name: value for name, value in schema["properties"].items() if name in names}
    schema["required"] = [name for name in schema["required"] if name in names]
