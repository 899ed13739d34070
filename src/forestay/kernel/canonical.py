"""Canonical JSON: one byte string for one value, and the only door through which foreign JSON comes in.

UTF-8, no white space, keys sorted by code point, arrays in order. `decode` bounds what it reads
before it reads it, and turns every kind of malformed text into one Problem that says where.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from typing import Any, TypeVar, overload

import msgspec

from forestay.kernel.problems import Problem

T = TypeVar("T")

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 128

_encoder = msgspec.json.Encoder(order="sorted")
_decode = msgspec.json.Decoder().decode
_pack = msgspec.msgpack.Encoder().encode
# MessagePack's mark of a float, its sign, and an exponent of ones.
_NON_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]", re.DOTALL)
# An escaped NUL: "\u0000" behind an even number of backslashes.
_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def encode(value: object) -> bytes:
    """The canonical bytes of `value`; a value that JSON cannot carry is a Problem."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Problem(
            "invalid_json",
            "This value cannot be written as JSON.",
            reason=reason_of(error),
            fix="Use objects with string keys, arrays, valid Unicode strings, finite numbers, booleans and null.",
        ) from error


def encode_strict(value: object) -> bytes:
    """As `encode`, for values that must survive storage anywhere: no NUL in a string, no NaN."""
    data = encode(value)
    _check_nul(data)
    if b"null" in data and _may_have_non_finite(value):
        _check_finite(value)
    return data


def encode_plain(value: object) -> tuple[bytes, Any]:
    """The bytes of `encode_strict`, and the plain value that a reader of them gets."""
    data = encode(value)
    if b"\\u0000" in data:
        _check_nul(data)
    if b"null" in data and _may_have_non_finite(value):
        _check_finite(value)
    return data, _decode(data)


def encode_each(values: Iterable[object]) -> list[tuple[bytes, Any]]:
    """`encode_plain` of many values."""
    return [encode_plain(value) for value in values]


def plain(value: Any, *, limit: int) -> Any:
    """`value` as a reader of its bytes gets it: a copy, as JSON, of at most `limit` bytes."""
    if value is None or isinstance(value, bool | int):
        return value
    data, copy = (encode_strict(value), value) if isinstance(value, str) else encode_plain(value)
    if len(data) > limit:
        raise Problem(
            "payload_too_large",
            f"A value may have {limit} bytes; this one has {len(data)}.",
            limit=limit,
            observed=len(data),
            fix="Keep large data outside and pass its address on.",
        )
    return copy


def _check_nul(data: bytes) -> None:
    if b"\\u0000" in data and _ESCAPED_NUL.search(data):
        raise Problem("invalid_text", "A string holds the character U+0000.", fix="Remove NUL characters from strings.")


def _may_have_non_finite(value: object) -> bool:
    """Whether MessagePack, which writes NaN and the infinities as they are, has bytes that look like one of them."""
    try:
        return _NON_FINITE.search(_pack(value)) is not None
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return True


def _check_finite(value: object) -> None:
    if _has_non_finite(value):
        raise Problem("invalid_json", "A number is NaN or infinite.", fix="Send finite numbers, or null.")


@overload
def decode(data: bytes | str, *, limit: int = ...) -> Any: ...
@overload
def decode(data: bytes | str, type: type[T], *, limit: int = ..., strict: bool = ...) -> T: ...


def decode(data: bytes | str, type: Any = Any, *, limit: int = MAX_DOCUMENT_BYTES, strict: bool = True) -> Any:
    """Read foreign JSON into `type`, within `limit` bytes and MAX_DEPTH levels."""
    if len(data) > limit:
        raise Problem(
            "payload_too_large",
            f"The document has {len(data)} bytes; at most {limit} are read.",
            limit=limit,
            observed=len(data),
            fix="Send a smaller document, or split it.",
        )
    if len(data) > MAX_DEPTH:  # a shorter one has fewer brackets
        _check_depth(data)
    try:
        return _decode(data) if type is Any else msgspec.json.decode(data, type=type, strict=strict)
    except msgspec.ValidationError as error:
        message, where = located(error)
        raise Problem("schema_mismatch", message, at=where, fix="Correct the field named in `at`.") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Problem(
            "invalid_json", "This is not valid JSON.", reason=reason_of(error), fix="Send valid JSON."
        ) from error


def digest(value: object) -> str:
    """`sha256:` and the hex digest of the canonical bytes."""
    return "sha256:" + hashlib.sha256(encode(value)).hexdigest()


def _check_depth(data: bytes | str) -> None:
    """Refuse nesting beyond MAX_DEPTH in one pass over the brackets.

    A parser that recurses would meet the end of its stack first, and where that is depends on the caller.
    """
    text = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _BRACKETS_AND_STRINGS.finditer(text):
        first = text[match.start()]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise Problem(
                    "nesting_too_deep",
                    f"The document is nested more than {MAX_DEPTH} levels deep.",
                    limit=MAX_DEPTH,
                    offset=match.start(),
                    fix="Flatten the document.",
                )
        elif first in b"]}":
            depth -= 1


_BRACKETS_AND_STRINGS = re.compile(rb'[\[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


_SEQUENCES = (list, tuple, set, frozenset)


def _has_non_finite(value: object) -> bool:
    """NaN and the infinities are written as null; a caller who needs the number must hear of it."""
    pending = [value]
    while pending:
        item = pending.pop()
        if item is None or isinstance(item, str):
            continue
        if isinstance(item, float):
            if not math.isfinite(item):
                return True
        elif isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, _SEQUENCES):
            pending.extend(item)
        elif isinstance(item, msgspec.Struct):
            pending.extend(getattr(item, name) for name in item.__struct_fields__)
    return False


def located(error: msgspec.ValidationError, root: str = "$") -> tuple[str, str]:
    """What the library says is wrong, and where: a path that begins with `root`."""
    message, _, where = str(error).partition(" - at `")
    return message, root + where.rstrip("`").removeprefix("$")


def reason_of(error: Exception) -> str:
    """Why a value cannot be written, or a text not read, in words of ours where the library has none."""
    if isinstance(error, RecursionError):
        return "nested too deeply, or a cycle"
    if isinstance(error, UnicodeError):
        return "a string holds a lone surrogate or invalid UTF-8"
    return str(error)[:200]
