"""Reads a request: its body within a limit, as JSON or as a form, and its query.

H1  A body is never held beyond its limit: it is refused as soon as too many bytes have arrived.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache, reduce
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from forestay.kernel import Problem, canonical
from forestay.surface.negotiation import JSON

BODY_LIMIT = 1024 * 1024
Form = dict[str, str]
_FORM_TYPE = "application/x-www-form-urlencoded"
_FORM_FIELDS = 50
_JSON_TYPE = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json", re.IGNORECASE)
_SEE = "See the parameter in the openapi.json of this surface."


async def read_body(request: Request, limit: int = BODY_LIMIT) -> bytes:
    """Return the whole body; refuse it as soon as it is known to exceed `limit` (H1)."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise Problem("unsupported_media_type", f"A body in {coding[:40]!r} is not read here.", expected="identity")
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(int(declared[:20]), limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(size, limit)
        chunks.append(chunk)
    return b"".join(chunks)


def parse_json(request: Request, data: bytes, type: Any, limit: int = BODY_LIMIT) -> Any:
    """Return the body as a `type`; no body, another media type, bad JSON or a bad shape is a Problem."""
    if not data:
        raise Problem("invalid_json", "The request has no body.", at="$", fix="Send one JSON document.")
    kind = _media_type(request)
    if kind and not _JSON_TYPE.fullmatch(kind):
        raise Problem("unsupported_media_type", f"{kind[:80]} is not read here.", expected=JSON)
    try:
        return canonical.decode(data, type, limit=limit)
    except Problem as problem:
        if "got `float`" not in problem.message:
            raise
        try:
            return msgspec.convert(_whole(canonical.decode(data, limit=limit)), type)
        except msgspec.ValidationError:
            raise problem from None


def parse_form(request: Request, data: bytes) -> Form:
    """Return the fields of an HTML form; of a repeated field, the last value."""
    try:
        if data and _media_type(request) != _FORM_TYPE:
            raise ValueError
        return dict(parse_qsl(data.decode("ascii"), keep_blank_values=True, max_num_fields=_FORM_FIELDS))
    except ValueError:
        raise Problem("invalid_request", "The form cannot be read.", fix=f"Send {_FORM_TYPE}.") from None


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip()


def _whole(value: Any) -> Any:
    """Turn whole floats into integers: to JSON Schema, 7.0 is an integer."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def _too_large(size: int, limit: int) -> Problem:
    return Problem("payload_too_large", f"The body is larger than {limit} bytes.", limit=limit, observed=size)


# The query


def read_query(request: Request, kind: type[msgspec.Struct]) -> Any:
    """Return the query as `kind`; refuse a value that is out of range, of another type or given twice (W8).

    Unknown parameters are ignored, unless `kind` forbids them.
    """
    fields = _fields(kind)
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        field = fields.get(name)
        if field is None:
            if kind.__struct_config__.forbid_unknown_fields:
                raise Problem("schema_mismatch", f"There is no parameter {name[:40]}.", at=f"$.{name[:40]}", fix=_SEE)
            continue
        if _is_list(field.type):
            values.setdefault(name, []).extend(item for item in value.split(",") if item)
        elif name in values:
            raise Problem("schema_mismatch", f"The parameter {name} is given twice.", at=name)
        else:
            values[name] = value
    for name, field in fields.items():
        if field.required and name not in values:
            raise Problem("schema_mismatch", f"The parameter {name} is missing.", at=name, fix=_SEE)
    return kind(**{fields[name].name: _parameter(name, value, fields[name].type) for name, value in values.items()})


class _Field(NamedTuple):
    name: str
    type: Any
    required: bool


@lru_cache(maxsize=256)
def _fields(kind: type[msgspec.Struct]) -> dict[str, _Field]:
    """Return the parameters of a query by their external names. None is no value: the word `null` is a text."""
    return {
        field.encode_name: _Field(field.name, _present(field.type), field.required)
        for field in msgspec.structs.fields(kind)
    }


def _present(kind: Any) -> Any:
    """Return the type without None."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return reduce(operator.or_, (part for part in get_args(kind) if part is not NoneType))


def _parameter(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "")
        raise Problem(
            "out_of_range" if "Expected `int` >" in message or "Expected `int` <" in message else "schema_mismatch",
            message,
            at=name + where,
            fix=_SEE,
        ) from error


def _is_list(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is list
