"""Reads a context ledger: full, as a delta, or in summary (R30, R31)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forestay.envelope.context.deltas import removed_constraints
from forestay.envelope.context.store import Held
from forestay.envelope.context.types import Entry, Query
from forestay.envelope.pages import Cursors, cursor_page, no_page, offset_page, page_request, whole_number
from forestay.envelope.types import Page
from forestay.kernel import Problem, canonical, iso

MODES = ("full", "delta", "summary")
MAX_ANSWER_BYTES = 1024 * 1024
_PARAMETERS = ("mode", "sinceVersion", "filterByOperation", "limit", "includeChecksum", "offset", "cursor")
_OPERATION = re.compile(r"!?[A-Za-z0-9._:/-]{0,128}\*?")


class Projected(msgspec.Struct, frozen=True):
    """An answer before it is put into an envelope."""

    result: dict[str, Any]
    page: Page
    context_version: int
    cursor_at: Callable[[int], str] | None = None


def read_query(parameters: Mapping[str, str]) -> Query:
    """Read and check the parameters of the request; refuse an unknown one."""
    unknown = sorted(name for name in parameters if name not in _PARAMETERS and not name.startswith("_"))
    if unknown:
        raise Problem(
            "schema_mismatch", f"There is no parameter {unknown[0][:40]!r}.", at=unknown[0][:40], known=_PARAMETERS
        )
    mode = parameters.get("mode", "full")
    if mode not in MODES:
        raise Problem("context_mode_invalid", f"{mode[:40]!r} is not a mode.", at="mode", allowed=MODES)
    if mode == "summary":
        return Query(mode="summary", include_checksum=_flag(parameters))
    _only("offset", "full", mode, parameters)
    _only("cursor", "delta", mode, parameters)
    asked = page_request(parameters.get("limit"), parameters.get("offset"), parameters.get("cursor"))
    return Query(
        mode="full" if mode == "full" else "delta",
        since_version=_since(parameters, required=mode == "delta"),
        operations=_filters(parameters),
        limit=asked.limit,
        offset=asked.offset or 0,
        cursor=asked.cursor,
        include_checksum=_flag(parameters),
    )


def project(held: Held, query: Query, cursor_key: bytes, *, max_bytes: int = MAX_ANSWER_BYTES) -> Projected:
    """Return the ledger in the mode of `query`."""
    shape = {"full": _full, "delta": _delta, "summary": _summary}[query.mode]
    result, page = shape(held, query, cursor_key)
    if query.include_checksum:
        result["checksum"] = held.checksum
    size = len(canonical.encode(result))
    if size > max_bytes:
        raise Problem(
            "context_too_large", f"The context has {size} bytes; {max_bytes} are sent.", limit=max_bytes, observed=size
        )
    cursor_at = None
    if query.mode == "delta":
        entries, cursors = result["entries"], _cursors(held, query, cursor_key)
        cursor_at = lambda count: cursors.seal(_position(entries[count - 1]))  # noqa: E731
    return Projected(result, page, held.context.version, cursor_at)


def matches(operation: str, filters: tuple[str, ...]) -> bool:
    """Whether a positive filter matches `operation` and no negated one does; `task.*` matches by prefix."""
    wanted = [item for item in filters if not item.startswith("!")]
    unwanted = [item[1:] for item in filters if item.startswith("!")]
    if any(_matches_one(operation, item) for item in unwanted):
        return False
    return not wanted or any(_matches_one(operation, item) for item in wanted)


def _full(held: Held, query: Query, _key: bytes) -> tuple[dict[str, Any], Page]:
    chosen = [entry for entry in held.entries if matches(entry.operation, query.operations)]
    part = chosen[query.offset : query.offset + query.limit]
    more = query.offset + len(part) < len(chosen)
    page = offset_page(limit=query.limit, offset=query.offset, has_more=more, total=len(chosen))
    return {
        **_head(held, "full"),
        "createdAt": iso(held.created_ms),
        "entries": msgspec.to_builtins(part),
        "context": msgspec.to_builtins(held.context),
    }, page


def _delta(held: Held, query: Query, key: bytes) -> tuple[dict[str, Any], Page]:
    since, current = query.since_version or 0, held.context.version
    if since > current:
        raise Problem(
            "context_version_invalid", f"The context has no version {since}.", at="sinceVersion", current=current
        )
    if since < held.compacted:
        raise Problem(
            "context_compacted",
            f"Changes up to version {held.compacted} were compacted.",
            sinceVersion=since,
            oldest=held.compacted,
        )
    newer = [entry for entry in held.entries if entry.version > since and matches(entry.operation, query.operations)]
    part, next_cursor = _page_of(newer, query, _cursors(held, query, key))
    removed = [item for entry in part for item in removed_constraints(entry.context_delta)]
    return {
        **_head(held, "delta"),
        "fromVersion": since,
        "toVersion": current,
        "entries": msgspec.to_builtins(part),
        "removedConstraints": removed,
        "deltaFormat": {"type": "append-only", "baseVersion": since, "targetVersion": current},
    }, cursor_page(next_cursor=next_cursor, limit=query.limit)


def _summary(held: Held, _query: Query, _key: bytes) -> tuple[dict[str, Any], Page]:
    return _head(held, "summary"), no_page()


def _head(held: Held, mode: str) -> dict[str, Any]:
    return {
        "ledgerId": held.ledger_id,
        "mode": mode,
        "version": held.context.version,
        "entryCount": held.entry_count,
        "updatedAt": iso(held.updated_ms),
    }


def _page_of(entries: list[Entry], query: Query, cursors: Cursors) -> tuple[list[Entry], str | None]:
    start = 0
    if query.cursor is not None:
        last = cursors.open(query.cursor)["entryId"]
        places = [index for index, entry in enumerate(entries) if entry.entry_id == last]
        if not places:
            raise Problem("context_compacted", "The place of the cursor was compacted away.", at="cursor")
        start = places[0] + 1
    part = entries[start : start + query.limit]
    if start + len(part) >= len(entries):
        return part, None
    return part, cursors.seal(_position(msgspec.to_builtins(part[-1])))


def _cursors(held: Held, query: Query, key: bytes) -> Cursors:
    return Cursors(key, f"{held.ledger_id}\0{query.since_version}\0{','.join(query.operations)}")


def _position(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("version", "timestamp", "entryId")}


def _since(parameters: Mapping[str, str], *, required: bool) -> int | None:
    text = parameters.get("sinceVersion")
    if text is None:
        if required:
            raise Problem("context_version_invalid", "Mode delta needs sinceVersion.", at="sinceVersion")
        return None
    try:
        return whole_number("sinceVersion", text, 0, 2**53)
    except Problem as problem:
        raise Problem("context_version_invalid", problem.message, at="sinceVersion") from problem


def _filters(parameters: Mapping[str, str]) -> tuple[str, ...]:
    text = parameters.get("filterByOperation", "")
    filters = tuple(part.strip() for part in text.split(",") if part.strip())
    for item in filters:
        if len(filters) > 50 or not _OPERATION.fullmatch(item):
            raise Problem(
                "schema_mismatch",
                f"{item[:40]!r} is not an operation filter.",
                at="filterByOperation",
                fix="Use names, `task.*` for a family, `!name` to leave one out, with commas between; at most 50.",
            )
    return filters


def _only(name: str, mode: str, actual: str, parameters: Mapping[str, str]) -> None:
    if name in parameters and actual != mode:
        raise Problem("schema_mismatch", f"{name} belongs to mode {mode}, not {actual}.", at=name)


_FLAGS: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False}


def _flag(parameters: Mapping[str, str]) -> bool:
    value = _FLAGS.get(parameters.get("includeChecksum", "true").lower())
    if value is None:
        raise Problem("schema_mismatch", "includeChecksum is true or false.", at="includeChecksum")
    return value


def _matches_one(operation: str, filter: str) -> bool:
    return operation.startswith(filter[:-1]) if filter.endswith("*") else operation == filter
