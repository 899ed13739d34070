"""Targets of the envelope: documents, cursors and pages."""

from __future__ import annotations

import msgspec

from forestay import envelope
from forestay.envelope.pages import Cursors, page_request
from forestay.kernel import Problem
from tests.fuzz.target import lines_of, target

_JSON = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1", b'""', b"{}", b"[]")


_META = (
    b'"_meta":{"specVersion":"1.2.3","schemaVersion":"1.0.0","timestamp":"2026-11-16T12:00:00Z","operation":"a.b",'
    b'"requestId":"req-1","transport":"http","strict":true,"mvi":"standard","contextVersion":0}'
)
_ENVELOPE = (
    b'{"$schema":"https://lafs.dev/schemas/v1/envelope.schema.json",' + _META + b',"success":true,"result":{"a":1}}'
)


@target(
    ["envelope.validate"],
    [
        _ENVELOPE,
        _ENVELOPE.replace(
            b'"success":true,"result":{"a":1}',
            b'"success":false,"result":null,"error":{"code":'
            b'"E_NOT_FOUND","message":"m","category":"NOT_FOUND","retryable":false,"retryAfterMs":null,"details":{}}',
        ),
        _ENVELOPE.replace(b'"result":{"a":1}', b'"result":[],"page":{"mode":"cursor","nextCursor":"x","hasMore":true}'),
    ],
    (*_JSON, b'"_meta":', b'"page":', b'"mode":"offset"', b'"error":', b'"details":', b'"_extensions":', b'"x-a":'),
)
def envelope_document(data: bytes) -> None:
    """An envelope of anybody's; what is taken is taken again when we write it."""
    try:
        envelope.parse(data)
    finally:
        for strict in (True, False):
            try:
                found = envelope.decode(data, strict=strict)
            except Problem:
                continue
            assert msgspec.json.encode(
                envelope.decode(msgspec.json.encode(found), strict=strict)
            ) == msgspec.json.encode(found)


_CURSORS = Cursors(b"k" * 32, "list")
_SEALED = {_CURSORS.seal(position) for position in (0, {"id": "a"}, [1, 2])}


@target(
    ["envelope.pages"],
    [*(f"10\n\n{cursor}".encode() for cursor in sorted(_SEALED)), b"5\n3\n", b"-1\n0\nx"],
    (b"==", b"-", b"_", b"\n", b"0", b"1000", b"9" * 19, *(cursor.encode() for cursor in sorted(_SEALED))),
)
def cursor(data: bytes) -> None:
    """A page that somebody asks for: only cursors that we gave out open."""
    limit, offset, text = lines_of(data, 3)
    request = page_request(limit or None, offset or None, text or None)
    if request.cursor is not None:
        _CURSORS.open(request.cursor)
        assert request.cursor in _SEALED
