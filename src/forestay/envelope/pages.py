"""Pages: by offset, by cursor, or none at all (R38).

- G1  A page carries the members of its own mode and no others.
- G2  A cursor is opaque to its holder and opens only for the list that it came from; a changed cursor is refused.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from forestay.envelope.types import Page
from forestay.kernel import Problem, base64url, canonical

T = TypeVar("T")

MAX_LIMIT = 1000
DEFAULT_LIMIT = 100
MAX_CURSOR = 2048
_SEAL_BYTES = 16


class PageRequest(msgspec.Struct, frozen=True):
    """Which part of a list is wanted: `cursor` or `offset`, never both."""

    limit: int = DEFAULT_LIMIT
    offset: int | None = None
    cursor: str | None = None


def page_request(limit: object = None, offset: object = None, cursor: object = None) -> PageRequest:
    """Read a caller's page request; numbers may come as text. Two modes at once are refused."""
    if offset is not None and cursor is not None:
        raise Problem(
            "schema_mismatch",
            "A page is asked for by offset or by cursor, not by both.",
            at="$.cursor",
            fix="Send `cursor` with the value of the last page's nextCursor, or `offset`.",
        )
    if cursor is not None and not (isinstance(cursor, str) and 0 < len(cursor) <= MAX_CURSOR):
        raise _bad_cursor()
    return PageRequest(
        limit=DEFAULT_LIMIT if limit is None else whole_number("limit", limit, 1, MAX_LIMIT),
        offset=None if offset is None else whole_number("offset", offset, 0, 2**53),
        cursor=cursor,
    )


def offset_page(*, limit: int, offset: int, has_more: bool, total: int | None = None) -> Page:
    return Page(
        mode="offset",
        limit=whole_number("limit", limit, 1, MAX_LIMIT),
        offset=whole_number("offset", offset, 0, 2**53),
        has_more=has_more,
        total=UNSET if total is None else total,
    )


def cursor_page(*, next_cursor: str | None, limit: int | None = None, total: int | None = None) -> Page:
    """Build a page by cursor; `has_more` is true exactly when there is a next cursor."""
    return Page(
        mode="cursor",
        limit=UNSET if limit is None else whole_number("limit", limit, 1, MAX_LIMIT),
        next_cursor=next_cursor,
        has_more=next_cursor is not None,
        total=UNSET if total is None else total,
    )


def no_page() -> Page:
    """Build the page of an answer that holds the whole list."""
    return Page(mode="none")


def slice_by_offset(items: Sequence[T], request: PageRequest) -> tuple[list[T], Page]:
    """Return the part of a list in memory that `request` asks for, with its page."""
    offset = request.offset or 0
    part = list(items[offset : offset + request.limit])
    more = offset + len(part) < len(items)
    return part, offset_page(limit=request.limit, offset=offset, has_more=more, total=len(items))


class Cursors:
    """Seals a position of one list into a cursor, and opens it again."""

    def __init__(self, key: bytes, scope: str) -> None:
        """`scope` names the list and everything it was filtered by; a cursor of another scope does not open."""
        if len(key) < 16:
            raise Problem("config_invalid", "A cursor key needs at least 16 bytes.", at="cursor key")
        self._key = hashlib.sha256(b"forestay cursor\0" + key + b"\0" + scope.encode()).digest()

    def seal(self, position: Any) -> str:
        payload = canonical.encode(position)
        cursor = base64url.encode(self._tag(payload) + payload)
        if len(cursor) > MAX_CURSOR:
            raise Problem(
                "out_of_range",
                f"A position takes {len(cursor)} characters as a cursor; {MAX_CURSOR} are allowed.",
                most=MAX_CURSOR,
                fix="Keep only the sort key and the id of the last item in the position.",
            )
        return cursor

    def open(self, cursor: str) -> Any:
        try:
            raw = base64url.decode(cursor)
        except ValueError as error:
            raise _bad_cursor() from error
        tag, payload = raw[:_SEAL_BYTES], raw[_SEAL_BYTES:]
        # The last comparison refuses another spelling of the same bytes (unused bits, padding).
        if not hmac.compare_digest(tag, self._tag(payload)) or base64url.encode(raw) != cursor:
            raise _bad_cursor()
        return canonical.decode(payload)

    def _tag(self, payload: bytes) -> bytes:
        return hmac.new(self._key, payload, hashlib.sha256).digest()[:_SEAL_BYTES]


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """Return `value` as an integer within the range, or raise a Problem that names the range."""
    if isinstance(value, str) and 0 < len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise Problem(
        "out_of_range",
        f"{name} must be a whole number from {least} to {most}.",
        at=f"$.{name}",
        least=least,
        most=most,
        observed=value if isinstance(value, int) else str(value)[:40],
        fix=f"Use a whole number from {least} to {most}.",
    )


def _bad_cursor() -> Problem:
    return Problem(
        "schema_mismatch",
        "The cursor is not one that this list gave out.",
        at="$.cursor",
        fix="Start again without a cursor, and send nextCursor back exactly as it came.",
    )
