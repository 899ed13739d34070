"""The contract's envelope schema: the published file when it is at hand, otherwise a copy of its constraints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "lafs"
URL = "https://lafs.dev/schemas/v1/envelope.schema.json"
CATEGORIES = "VALIDATION AUTH PERMISSION NOT_FOUND CONFLICT RATE_LIMIT TRANSIENT INTERNAL CONTRACT MIGRATION".split()
ACTIONS = "retry retry_modified escalate stop wait refresh_context authenticate".split()


def published(name: str) -> dict[str, Any] | None:
    path = REFERENCE / name
    if not path.exists():
        return None
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document


def envelope_schemas() -> list[dict[str, Any]]:
    """The copy, and the published schema where there is one: both are compared with."""
    found = published("envelope.schema.json")
    return [copied(), *([found] if found else [])]


def text(least: int | None = None, most: int | None = None, **more: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", **more}
    if least is not None:
        schema["minLength"] = least
    if most is not None:
        schema["maxLength"] = most
    return schema


def number(least: int, most: int | None = None, *, nullable: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": ["integer", "null"] if nullable else "integer", "minimum": least}
    if most is not None:
        schema["maximum"] = most
    return schema


def copied() -> dict[str, Any]:
    semver = text(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
    meta = {
        "specVersion": semver,
        "schemaVersion": semver,
        "timestamp": text(format="date-time"),
        "operation": text(1, 128),
        "requestId": text(3, 128),
        "transport": {"enum": ["cli", "http", "grpc", "sdk"]},
        "strict": {"type": "boolean"},
        "mvi": {"enum": ["minimal", "standard", "full", "custom"]},
        "contextVersion": number(0),
    }
    warning = {name: text() for name in ("code", "message", "deprecated", "replacement", "removeBy")}
    optional_meta = {
        "sessionId": text(1, 256),
        "warnings": {
            "type": "array",
            "items": {"type": "object", "properties": warning, "required": ["code", "message"]},
        },
    }
    error = {
        "code": text(pattern="^E_[A-Z0-9]+_[A-Z0-9_]+$"),
        "message": text(1, 1024),
        "category": {"enum": CATEGORIES},
        "retryable": {"type": "boolean"},
        "retryAfterMs": number(0, nullable=True),
        "details": {"type": "object"},
    }
    optional_error = {
        "agentAction": {"enum": ACTIONS},
        "escalationRequired": {"type": "boolean"},
        "suggestedAction": text(None, 512),
        "docUrl": text(format="uri"),
    }
    page = {
        "mode": {"enum": ["offset", "cursor", "none"]},
        "limit": number(1, 1000),
        "offset": number(0),
        "nextCursor": {"type": ["string", "null"], "maxLength": 2048},
        "hasMore": {"type": "boolean"},
        "total": number(0, nullable=True),
    }
    needs = {"cursor": ["nextCursor", "hasMore"], "offset": ["limit", "offset", "hasMore"]}
    members = {
        "$schema": {"const": URL},
        "_meta": {
            "type": "object",
            "properties": {**meta, **optional_meta},
            "required": list(meta),
            "additionalProperties": False,
        },
        "success": {"type": "boolean"},
        "result": {"type": ["object", "array", "null"]},
        "error": {
            "type": ["object", "null"],
            "properties": {**error, **optional_error},
            "required": list(error),
        },
        "page": {
            "type": ["object", "null"],
            "properties": page,
            "required": ["mode"],
            "additionalProperties": False,
            "allOf": [
                {
                    "if": {"type": "object", "properties": {"mode": {"const": mode}}, "required": ["mode"]},
                    "then": {"required": names},
                }
                for mode, names in needs.items()
            ],
        },
        "_extensions": {"type": "object"},
    }
    strict = {"properties": {"_meta": {"type": "object", "properties": {"strict": {"const": True}}}}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "required": ["$schema", "_meta", "success", "result"],
        "properties": members,
        "allOf": [
            {
                "if": {"properties": {"success": {"const": True}}},
                "then": {"properties": {"error": {"type": "null"}}},
            },
            {
                "if": {"properties": {"success": {"const": False}}},
                "then": {"required": ["error"], "properties": {"error": {"type": "object"}}},
            },
            {"if": strict, "then": {"properties": dict.fromkeys(members, True), "additionalProperties": False}},
        ],
    }
