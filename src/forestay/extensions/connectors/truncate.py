"""Cutting long output the way the tools promise: whole lines, within a number of lines and bytes, and saying so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_LINES = 2000
MAX_BYTES = 50 * 1024
MAX_GREP_LINE = 500


def size(count: int) -> str:
    if count < 1024:
        return f"{count}B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f}KB"
    return f"{count / (1024 * 1024):.1f}MB"


def head(content: str, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The first lines that fit; nothing when already the first does not."""
    lines = content.split("\n")
    total = len(content.encode("utf-8", "replace"))
    if len(lines) <= max_lines and total <= max_bytes:
        return _result(content, None, lines, total, len(lines), max_lines, max_bytes)
    kept, reason = _fitting(lines[:max_lines], max_bytes)
    result = _result("\n".join(lines[:kept]), reason, lines, total, kept, max_lines, max_bytes)
    return {**result, "firstLineExceedsLimit": kept == 0 and reason == "bytes"}


def tail(content: str, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The last lines that fit; of a single line that does not, its end."""
    lines = content.split("\n")
    total = len(content.encode("utf-8", "replace"))
    if len(lines) <= max_lines and total <= max_bytes:
        return _result(content, None, lines, total, len(lines), max_lines, max_bytes)
    kept, reason = _fitting(reversed(lines[-max_lines:]), max_bytes)
    if kept == 0:
        text = lines[-1].encode("utf-8", "replace")[-max_bytes:].decode("utf-8", "ignore")
        result = _result(text, reason, lines, total, 1, max_lines, max_bytes)
        return {**result, "lastLinePartial": True}
    return _result("\n".join(lines[-kept:]), reason, lines, total, kept, max_lines, max_bytes)


def _fitting(lines: Iterable[str], max_bytes: int) -> tuple[int, str]:
    """How many of `lines` fit into `max_bytes`, and what stopped the count."""
    kept, used = 0, -1  # the first line has no line break before it
    for line in lines:
        used += len(line.encode("utf-8", "replace")) + 1
        if used > max_bytes:
            return kept, "bytes"
        kept += 1
    return kept, "lines"


def line(content: str, limit: int = MAX_GREP_LINE) -> tuple[str, bool]:
    return (content[:limit] + "... [truncated]", True) if len(content) > limit else (content, False)


def _result(
    content: str, reason: str | None, lines: list[str], total: int, kept: int, max_lines: int, max_bytes: int
) -> dict[str, Any]:
    return {
        "content": content,
        "truncated": reason is not None,
        "truncatedBy": reason,
        "totalLines": len(lines),
        "totalBytes": total,
        "outputLines": kept,
        "outputBytes": len(content.encode("utf-8", "replace")),
        "lastLinePartial": False,
        "firstLineExceedsLimit": False,
        "maxLines": max_lines,
        "maxBytes": max_bytes,
    }
