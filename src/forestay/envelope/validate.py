"""Reads foreign envelopes: bytes in, an `Envelope` or a Problem out (R12 to R16, R45).

- V1  The reader accepts exactly what the contract's JSON Schema accepts, formats included.
- V2  In addition, the text must be one JSON document in which no object names a member twice, within the limits below.
- V3  The cost is bounded before the text is read: bytes first, then depth, then one pass of typed decoding.

V2 costs almost nothing: strings take two quotes each, so a document and its decoded form, encoded again, have the
same number of quotes exactly when no member was dropped. Only when they differ is the text read a second time, to
tell a repeated member (refused) from an unknown one (refused when strict, R16).
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET

from forestay.envelope.formats import is_date_time, is_uri, plain_date_time
from forestay.envelope.types import CODE, SCHEMA_VERSION, SEMVER, SPEC_VERSION, Envelope, Error, Page, Result
from forestay.kernel import LAFS_CODES, TABLE, Problem, canonical, lafs_registry

MAX_ENVELOPE_BYTES = 2 * 1024 * 1024
MAX_DEPTH = 128
_SMALL = 1024  # bytes: too short to be nested dangerously deep

_decode = msgspec.json.Decoder(Envelope).decode
_encode = msgspec.json.Encoder().encode
_MEMBERS = frozenset(field.encode_name for field in msgspec.structs.fields(Envelope))
_PAGE_MEMBERS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(Page) if field.name != "mode")
_FOREIGN = {
    "cursor": (("offset", "offset"),),
    "offset": (("next_cursor", "nextCursor"),),
    "none": _PAGE_MEMBERS,
}
_INTEGERS = (
    ("_meta", "contextVersion"),
    ("error", "retryAfterMs"),
    ("page", "limit"),
    ("page", "offset"),
    ("page", "total"),
)
_KNOWN_URLS = frozenset(row["docUrl"] for row in lafs_registry())
_SEMVER = re.compile(SEMVER)
_CODE = re.compile(CODE)
_CLOSE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def decode(data: bytes | str, strict: bool | None = None, limit: int = MAX_ENVELOPE_BYTES) -> Envelope:
    """Return the envelope in `data`. `strict` overrides the envelope's own rule about unknown members."""
    if data.__class__ is not bytes:
        data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    if len(data) > _SMALL:
        _check_size(data, limit)
    try:
        envelope = _decode(data)
    except msgspec.ValidationError as error:
        envelope = _with_whole_floats(data, error)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _not_json(error) from error
    check(envelope)
    understood = _encode(envelope)
    if understood != data and _quotes(understood) != _quotes(data):
        _check_members(data, envelope.meta.strict if strict is None else strict)
    return envelope


def parse(
    data: bytes | str,
    *,
    strict: bool | None = None,
    require_registered: bool = False,
    limit: int = MAX_ENVELOPE_BYTES,
) -> Result:
    """Return the result of a success; raise the Problem of a failure. Mixed page modes are refused too (R38)."""
    envelope = decode(data, strict=strict, limit=limit)
    if isinstance(envelope.page, Page):
        mixed = mixed_page(envelope.page)
        if mixed:
            raise Problem("schema_mismatch", mixed, at="$.page", fix="Send the members of one mode only.")
    if isinstance(envelope.error, Error):
        raise problem_of(envelope.error, require_registered=require_registered)
    return envelope.result


def problem_of(error: Error, *, require_registered: bool = False) -> Problem:
    """Return the Problem of `error`: the row that its details name, else the first row with its code."""
    if error.code not in LAFS_CODES and require_registered:
        raise Problem(
            "schema_mismatch",
            f"{error.code} is not a registered code.",
            at="$.error.code",
            fix="Register the code, or read with require_registered off.",
        )
    named = error.details.get("problem")
    row = TABLE.get(named) if isinstance(named, str) else None
    if row is None or row.lafs != error.code:
        row = next((row for row in TABLE.values() if row.lafs == error.code), TABLE["upstream_failed"])
    details = {name: value for name, value in error.details.items() if name.isidentifier() and name != "problem"}
    for taken in ("key", "message", "retry_after_ms", "self"):
        if taken in details:
            details[f"{taken}_"] = details.pop(taken)
    if error.code not in LAFS_CODES:
        details["code"] = error.code
    return Problem(row.key, error.message, retry_after_ms=error.retry_after_ms, **details)


def check(envelope: Envelope) -> None:
    """Check what the types cannot say: R13, R14, patterns, formats, and the members that each page mode needs."""
    meta, error, page = envelope.meta, envelope.error, envelope.page
    if meta.spec_version != SPEC_VERSION:
        _check_version(meta.spec_version, "specVersion")
    if meta.schema_version != SCHEMA_VERSION:
        _check_version(meta.schema_version, "schemaVersion")
    if not (plain_date_time(meta.timestamp) or is_date_time(meta.timestamp)):
        _refuse("timestamp is not an RFC 3339 date-time.", "$._meta.timestamp")
    if error is UNSET or error is None:
        if not envelope.success:
            _refuse("A failed envelope needs an error object.", "$.error")
    elif envelope.success:
        _refuse("A successful envelope has no error.", "$.error")
    else:
        if error.code not in LAFS_CODES and not _CODE.search(error.code):
            _refuse("An error code is E_, a domain and a name, in capitals.", "$.error.code")
        if error.doc_url is not UNSET and error.doc_url not in _KNOWN_URLS and not is_uri(error.doc_url):
            _refuse("docUrl is not a URI.", "$.error.docUrl")
    if page is not UNSET and page is not None and page.mode != "none":
        if page.has_more is UNSET:
            _refuse(f"A page of mode {page.mode} needs hasMore.", "$.page.hasMore")
        if page.mode == "cursor":
            if page.next_cursor is UNSET:
                _refuse("A page of mode cursor needs nextCursor.", "$.page.nextCursor")
        elif page.limit is UNSET or page.offset is UNSET:
            name = "limit" if page.limit is UNSET else "offset"
            _refuse(f"A page of mode offset needs {name}.", f"$.page.{name}")


def _check_version(text: str, name: str) -> None:
    if not _SEMVER.search(text):
        _refuse(f"{name} is not three numbers with dots.", f"$._meta.{name}")


def mixed_page(page: Page) -> str | None:
    """Return what is wrong when a page carries members of another mode, or None (R38)."""
    foreign = [name for attribute, name in _FOREIGN[page.mode] if getattr(page, attribute) is not UNSET]
    return f"A page of mode {page.mode} must not have {', '.join(foreign)}." if foreign else None


def _refuse(message: str, at: str) -> NoReturn:
    raise Problem("schema_mismatch", message, at=at, fix="Correct the member named in `at`.")


def _mismatch(error: msgspec.ValidationError) -> Problem:
    message, where = canonical.located(error)
    return Problem("schema_mismatch", message + ".", at=where, fix="Correct the member named in `at`.")


def _not_json(error: Exception) -> Problem:
    if isinstance(error, RecursionError):
        return Problem("nesting_too_deep", "The envelope is nested too deeply.", limit=MAX_DEPTH)
    reason = "invalid UTF-8" if isinstance(error, UnicodeError) else str(error)[:200]
    return Problem("invalid_json", "This is not valid JSON.", reason=reason, fix="Send one JSON document in UTF-8.")


def _with_whole_floats(data: bytes, error: msgspec.ValidationError) -> Envelope:
    """Decode again with whole floats as integers: JSON Schema accepts 1.0 as an integer, typed decoding does not."""
    if "got `float`" not in str(error):
        raise _mismatch(error) from error
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as broken:  # typed decoding stopped before that place
        raise _not_json(broken) from broken
    if not isinstance(plain, dict):
        raise _mismatch(error) from error
    for parent, name in _INTEGERS:
        holder = plain.get(parent)
        if isinstance(holder, dict) and isinstance(holder.get(name), float) and holder[name].is_integer():
            holder[name] = int(holder[name])
    try:
        return msgspec.convert(plain, Envelope)
    except msgspec.ValidationError as still:
        raise _mismatch(still) from still


def _quotes(text: bytes) -> int:
    """Count the quotes that delimit strings."""
    return (_without_escapes(text) if b"\\" in text else text).count(b'"')


def _without_escapes(text: bytes) -> bytes:
    """Return `text` without escaped backslashes and quotes; a run of backslashes pairs up from its start."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"")


def _check_members(data: bytes, strict: bool) -> None:
    """Refuse a repeated member, and an unknown top-level one when strict."""
    import json  # rarely needed, and the command line starts faster without it

    try:
        plain = json.loads(data, object_pairs_hook=_no_repeats, parse_int=len, parse_float=len)
    except (ValueError, RecursionError) as error:  # in a part that typed decoding skipped
        raise _not_json(error) from error
    unknown = sorted(plain.keys() - _MEMBERS)
    if strict and unknown:
        raise Problem(
            "schema_mismatch",
            f"A strict envelope has no member {unknown[0][:80]!r}.",
            at=f"$.{unknown[0][:80]}",
            unknown=[name[:80] for name in unknown[:10]],
            fix="Put vendor members into _extensions under an x- key, or set _meta.strict to false.",
        )


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Problem(
                    "invalid_json",
                    f"An object names the member {name[:80]!r} twice.",
                    member=name[:80],
                    fix="Send each member once.",
                )
            seen.add(name)
    return members


def _check_size(data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise Problem(
            "payload_too_large",
            f"The envelope has {len(data)} bytes; at most {limit} are read.",
            limit=limit,
            observed=len(data),
            fix="Ask for less: a page, fields, a budget.",
        )
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(data)


def _check_depth(data: bytes) -> None:
    """Refuse nesting beyond MAX_DEPTH without a loop over the bytes: each round takes the innermost pairs away."""
    outside_strings = b"".join(_without_escapes(data).split(b'"')[::2])
    brackets = outside_strings.translate(_CLOSE, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        if b"[" * (MAX_DEPTH + 1) in brackets:
            break
        fewer = brackets.replace(b"[]", b"")
        if len(fewer) == len(brackets):
            return  # nothing is left, or the brackets are unbalanced, which the decoder explains better
        brackets = fewer
    if brackets:
        raise Problem(
            "nesting_too_deep",
            f"The envelope is nested more than {MAX_DEPTH} levels deep.",
            limit=MAX_DEPTH,
            fix="Flatten what it carries.",
        )
