"""An operation that another application answers."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Relayed(Response):
    """The answer of another application, which gets the body that was already read."""

    def __init__(self, app: ASGIApp, data: bytes = b"") -> None:
        super().__init__()
        self._app = app
        self._data: bytes | None = data

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def replayed() -> Message:
            data, self._data = self._data, None
            return await receive() if data is None else {"type": "http.request", "body": data, "more_body": False}

        await self._app(scope, replayed, send)
