"""The `events` method: the bus between extensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forestay.extensions.connectors.contract import Call, Output, text
from forestay.kernel import Problem


class EventsConnector:
    """The bus between extensions: `emit` {channel, data}."""

    method = "events"

    def __init__(self, emit: Callable[[str, str, Any], None] | None = None) -> None:
        self._emit = emit

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        if params.get("op", "emit") != "emit":
            raise Problem("invalid_request", f"There is no events operation {params.get('op')!r}.", at="$.params.op")
        if self._emit is not None:
            self._emit(call.extension, text(params, "channel"), params.get("data"))
        return {}
