"""The `session` method: read and change the session that an extension runs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from forestay.extensions.connectors.contract import Call, Output, text
from forestay.kernel import Problem


class SessionAccess(Protocol):
    """What an extension may read and change of its session."""

    async def request(self, operation: str, params: Mapping[str, Any]) -> Any: ...


class SessionConnector:
    method = "session"

    def __init__(self, session: SessionAccess | None = None) -> None:
        self._session = session

    async def wait(self, call: Call, params: Mapping[str, Any]) -> Output:
        if self._session is None:
            raise Problem("state_conflict", "There is no session here.", fix="Run the extension inside a session.")
        return {"value": await self._session.request(text(params, "op"), {**params, "place": call.place})}
