"""Writes OpenAPI 3.1 from the operations themselves, so it describes exactly what is served."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

import forestay
from forestay.kernel import TABLE
from forestay.surface.answers import Contract
from forestay.surface.negotiation import EVENTS, JSON, LAFS, PROBLEM_JSON
from forestay.surface.operations import Call, Operation
from forestay.surface.routing import PARAMETER, parameter_schema

_REF = "#/components/schemas/{name}"
_HEADERS = {
    "Idempotency-Key": (
        "1 to 255 visible characters; a repeated request with the same key is executed once.",
        "[!-~]{1,255}",
    ),
    "X-Dedup": ("`enforce`: refuse a second active run of the same workflow and scopeId.", None),
    "X-Force-Engine-Version": ("Test keys only.", None),
    "traceparent": ("W3C trace context; kept in the run's metadata and carried on by its webhooks.", None),
    "If-Match": (
        "The ETag of the revision that is to be changed, or `*`: otherwise 412.",
        r'\*|"[!#-~]*"(?:, ?"[!#-~]*")*',
    ),
    "If-None-Match": ("`*`: only when there is none yet, otherwise 412.", r"\*"),
    "webhook-id": ("The sender's id of the event: the same one again is the same delivery.", "[!-~]{1,256}"),
    "webhook-timestamp": ("When the request was signed, in seconds since 1970.", "[0-9]{1,12}"),
    "webhook-signature": ("`v1,` and base64(HMAC-SHA256(secret, id.timestamp.body)); more than one with spaces.", None),
    "X-CRP-Signature": (
        "For sessions with a binding secret: hex(HMAC-SHA256(session_key, sha256(METHOD + LF + path + LF + body))).",
        None,
    ),
    "Last-Event-ID": ("The last `id:` that was seen.", "-1|[0-9]{1,15}"),
}
_ERROR = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {
        "error": {"type": "string", "minLength": 1},
        "message": {"type": "string", "minLength": 1},
        "details": {"type": "object"},
    },
    "additionalProperties": False,
}
_ENVELOPE = {
    "type": "object",
    "required": ["$schema", "_meta", "success", "result"],
    "properties": {
        "$schema": {"const": "https://lafs.dev/schemas/v1/envelope.schema.json"},
        "_meta": {"type": "object"},
        "success": {"type": "boolean"},
        "result": {"type": ["object", "array", "null"]},
        "error": {"type": "object"},
    },
}

# Before OpenAPI 3.2, the schema of a stream is the schema of one event.
_SENT_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string", "description": "The sequence to go on after, for `Last-Event-ID`."},
        "event": {"type": "string", "description": "The type of the event, `state.snapshot`, or `batch`."},
        "data": {"type": "string", "description": "JSON: an event, a snapshot, or a list of events."},
    },
}


class About(msgspec.Struct, frozen=True):
    """The head of a document: its title, its server's path, and the type of its errors."""

    summary: str = "Durable workflows over OpenWOP 1.11."
    title: str = "forestay"
    version: str = forestay.__version__
    server: str = "/"
    errors: type[msgspec.Struct] | None = None
    key_required: bool = True


def document(operations: Sequence[Operation], about: About = About()) -> dict[str, Any]:  # noqa: B008 - frozen
    """Return the OpenAPI document of `operations`; paths are below `about.server`."""
    types = [*_types(operations), *([about.errors] if about.errors is not None else [])]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    known = {repr(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for operation in operations:
        path = operation.path if about.server == "/" else operation.path.removeprefix(about.server)
        paths.setdefault(path, {})[operation.method.lower()] = _described(operation, known)
    error = known[repr(about.errors)] if about.errors is not None else _ERROR
    return {
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "version": about.version,
            "summary": about.summary,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": about.server}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": error, "Envelope": _ENVELOPE},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}] if about.key_required else [{}, {"key": []}],
    }


def openapi(
    name: str, path: str, described: Callable[[], Sequence[Operation]], about: Callable[[], About] = About
) -> Operation:
    """Return the operation that serves the document of `described`, which is made on the first request."""
    made: dict[str, Any] = {}
    contract: Contract = "crp" if name.startswith("crp.") else "openwop"

    async def perform(call: Call) -> Response:
        if not made:
            made.update(document(described(), about()))
        return cacheable(call, made)

    return Operation(
        name=name,
        method="GET",
        path=path,
        perform=perform,
        summary="This document.",
        auth="none",
        answers={200: dict[str, Any], 304: None},
        contract=contract,
        tag="meta",
    )


def cacheable(call: Call, body: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a document that seldom changes; 304 for a caller that has it already."""
    tag = etag(body)
    status = 304 if tag in call.request.headers.get("if-none-match", "") else 200
    return call.answer(body, status, {"Cache-Control": "public, max-age=300", "ETag": tag, **(headers or {})})


def etag(value: Any) -> str:
    return '"' + hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:32] + '"'


def _types(operations: Iterable[Operation]) -> list[Any]:
    found: dict[str, Any] = {}
    for operation in operations:
        for kind in (operation.query, operation.body, *operation.answers.values()):
            if kind is not None:
                found[repr(kind)] = kind
    return list(found.values())


def _described(operation: Operation, known: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name.removeprefix("crp."),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_path(operation), *_query(operation), *_headers(operation)],
        "responses": {**_answers(operation, known), **_problems(operation)},
    }
    if operation.auth != "key":
        described["security"] = []
    if operation.scopes:
        described["x-scopes"] = list(operation.scopes)
    if operation.body is not None:
        described["requestBody"] = {
            "required": not operation.body_optional,
            "content": {JSON: {"schema": known[repr(operation.body)]}},
        }
    return described


def _path(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": parameter_schema(name)}
        for name in PARAMETER.findall(operation.path)
    ]


def _query(operation: Operation) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    (schema,), components = msgspec.json.schema_components([operation.query], ref_template=_REF)
    struct = components[schema["$ref"].rpartition("/")[2]]
    required = set(struct.get("required", ()))
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _without_null(kind),
            **({"style": "form", "explode": False} if kind.get("type") == "array" else {}),
        }
        for name, kind in struct["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from a parameter's schema: a parameter is absent or has a value."""
    choices = [item for item in schema.get("anyOf", ()) if item != {"type": "null"}]
    if len(choices) == 1:
        return dict(choices[0])
    return {name: value for name, value in schema.items() if name != "default" or value is not None}


def _headers(operation: Operation) -> list[dict[str, Any]]:
    names = (*operation.headers, "Idempotency-Key") if operation.mutates else operation.headers
    found = []
    for name in names:
        description, pattern = _HEADERS[name]
        schema: dict[str, Any] = {"type": "string"}
        if pattern is not None:
            schema["pattern"] = f"^(?:{pattern})$"
        found.append({"name": name, "in": "header", "required": False, "description": description, "schema": schema})
    return found


def _answers(operation: Operation, known: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, kind in operation.answers.items():
        answer: dict[str, Any] = {"description": operation.summary if status < 300 else "Nothing has changed."}
        if kind is not None:
            schema = known[repr(kind)]
            if status >= 400:  # it may also be refused before the operation, with the usual error body
                schema = {"anyOf": [schema, {"$ref": _REF.format(name="Error")}]}
            answer["content"] = _content(operation, schema)
            if operation.name == "events.stream":
                answer["content"][EVENTS] = {"schema": _SENT_EVENT}
        found[str(status)] = answer
    return found


def _content(operation: Operation, schema: Any) -> dict[str, Any]:
    if operation.media == EVENTS:
        return {EVENTS: {"schema": {"type": "string"}}}
    if operation.media != JSON:
        return {operation.media: {"schema": schema}}
    envelope = {"schema": {"allOf": [{"$ref": _REF.format(name="Envelope")}, {"properties": {"result": schema}}]}}
    own = envelope if operation.contract == "lafs" else {"schema": schema}
    return {JSON: own, LAFS: envelope}


def problem_keys(operation: Operation) -> list[str]:
    """Return every problem of an operation: its own, and those of the layers before it."""
    keys = [*operation.problems, "head_too_large", "rate_limited", "unavailable"]
    if "{" in operation.path:
        keys.append("not_found")
    if "{runId}" in operation.path:
        keys.append("records_removed")
    if operation.auth == "key":
        keys += ["unauthenticated", "key_expired", "key_revoked", "permission_denied"]
    if operation.body is not None:
        keys += ["invalid_json", "payload_too_large", "unsupported_media_type"]
    if operation.query is not None:
        keys.append("schema_mismatch")
    if operation.mutates:
        keys += ["schema_mismatch", "idempotency_in_flight", "idempotency_key_mismatch"]
    return sorted(set(keys))


def _problems(operation: Operation) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for key in problem_keys(operation):
        row = TABLE[key]
        code = row.crp if operation.contract == "crp" else row.openwop
        by_status.setdefault(row.http, []).append(f"`{code}`: {row.title}.")
    return {
        str(status): {"description": " ".join(dict.fromkeys(lines)), "content": _refusal(operation, status)}
        for status, lines in sorted(by_status.items())
        if status not in operation.answers
    }


def _refusal(operation: Operation, status: int) -> dict[str, Any]:
    """Describe a refusal in the operation's own form, or in one that the caller asks for.

    A head that is too large is refused before its operation is known (`guard.py`).
    """
    error, envelope = ({"schema": {"$ref": _REF.format(name=name)}} for name in ("Error", "Envelope"))
    if status == TABLE["head_too_large"].http:
        return {JSON: error}
    own = envelope if operation.contract == "lafs" else error
    return {JSON: own, PROBLEM_JSON: {"schema": {"type": "object"}}, LAFS: envelope}
