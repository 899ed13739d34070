"""The `session` method: reads and changes the session that an extension runs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from forestay.extensions.connectors.contract import Call, Output, text
from forestay.kernel import Problem


class SessionAccess(Protocol):
    """The operations on a session that an extension may use."""

    async def request(self, operation: str, params: Mapping[str, Any]) -> Any: ...


class SessionConnector:
    method = "session"

    def __init__(self, session: SessionAccess | None = None) -> None:
        self._session = session

    async def wait(self, call: Call, params: Mapping[str, Any]) -> Output:
        if self._session is None:
            raise Problem("state_conflict", "There is no session here.", fix="Run the extension inside a session.")
        return {"value": await self._session.request(text(params, "op"), {**params, "place": call.place})}
