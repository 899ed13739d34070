"""The `log` method: the extension's own log entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forestay.extensions.connectors.contract import Call, Output, text
from forestay.kernel import Bounds, Problem, bounded, cut, redact, redact_text

LEVELS = ("debug", "info", "warn", "error")
MAX_LOG_TEXT = 4096
_LOG_DATA = Bounds(text=MAX_LOG_TEXT, total=32_768, items=200, depth=16)


class LogConnector:
    """Cleans the entry and writes one record for each call, so that no entry can imitate another (Pi §3.1)."""

    method = "log"

    def __init__(self, write: Callable[[str, str, str, str, Any], None] | None = None) -> None:
        self._write = write

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        level = text(params, "level", "info")
        if level not in LEVELS:
            raise Problem("invalid_request", f"`level` must be one of {', '.join(LEVELS)}.", at="$.params.level")
        event = clean(text(params, "event", "extension.log")[:128])[:128]
        message = clean(text(params, "message", event))
        if self._write is not None:
            self._write(call.extension, level, event, message, redact(bounded(params.get("data"), _LOG_DATA)))
        return {}


def clean(value: str) -> str:
    """Return one line without control characters or secrets, which cannot look like another log entry."""
    value = cut(value, MAX_LOG_TEXT)
    plain = "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in value)
    return redact_text(plain)
