"""OpenAPI 3.1 of the sidecar, written from its operations: what is served is what is described."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.http.crp.operations import OPERATIONS, Operation
from forestay.kernel.problem_table import TABLE
from forestay.relay.types import PROTOCOL_VERSION, CrpError

_REF = "#/components/schemas/{name}"
_ERROR = {"$ref": "#/components/schemas/CrpError"}


def document(server: str = "/", *, key_required: bool = False) -> dict[str, Any]:
    types: list[Any] = [CrpError]
    for operation in OPERATIONS:
        types += [kind for kind in (*operation.answers.values(), operation.body) if kind is not None]
    types = [kind for place, kind in enumerate(types) if repr(kind) not in {repr(other) for other in types[:place]}]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    known = {repr(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "forestay relay",
            "version": PROTOCOL_VERSION,
            "description": "The CRP 2.0 sidecar of forestay: sessions, dispatches and facts over HTTP.",
        },
        "servers": [{"url": server}],
        "security": [{"bearerAuth": []}] if key_required else [{}, {"bearerAuth": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearerAuth": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(operation: Operation, known: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation, known),
    }
    parameters = _parameters(operation)
    if parameters:
        found["parameters"] = parameters
    if operation.body is not None:
        found["requestBody"] = {
            "required": not operation.body_optional,
            "content": {"application/json": {"schema": known[repr(operation.body)]}},
        }
    if operation.open:
        found["security"] = []
    return found


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if operation.session:
        found.append(
            {"name": "sessionId", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
        )
        found.append(
            {
                "name": "X-CRP-Signature",
                "in": "header",
                "required": False,
                "description": "For sessions with a binding secret: "
                "hex(HMAC-SHA256(session_key, sha256(METHOD + LF + path + LF + body))).",
                "schema": {"type": "string"},
            }
        )
    if operation.query is not None:
        schema = msgspec.json.schema(operation.query)
        own = schema["$defs"][schema["$ref"].rpartition("/")[2]]
        for name, kind in own["properties"].items():
            plain = kind.get("anyOf", [kind])[0]
            found.append({"name": name, "in": "query", "required": name in own.get("required", []), "schema": plain})
    return found


def _responses(operation: Operation, known: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, kind in operation.answers.items():
        entry: dict[str, Any] = {"description": operation.summary if status < 300 else "Not now."}
        if kind is not None:
            media = (
                "text/plain"
                if operation.text
                else "text/event-stream"
                if operation.name == "dispatchStream"
                else "application/json"
            )
            schema = {"type": "string"} if media == "text/event-stream" else known[repr(kind)]
            entry["content"] = {media: {"schema": schema}}
        found[str(status)] = entry
    statuses: dict[int, list[str]] = {}
    for key in operation.problems:
        statuses.setdefault(TABLE[key].http, []).append(key)
    for status, keys in sorted(statuses.items()):
        if str(status) not in found:
            titles = "; ".join(f"{TABLE[key].crp}: {TABLE[key].title}" for key in keys)
            found[str(status)] = {"description": titles, "content": {"application/json": {"schema": _ERROR}}}
    return found
