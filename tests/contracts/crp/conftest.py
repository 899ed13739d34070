"""A sidecar on a loopback port, in a thread of its own, over a real ledger."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from forestay.relay import Relay
from forestay.surface import bind, crp_app, serving, url_of
from tests.relay.conftest import Pieces


class Sidecar:
    """Where it is, the model behind it, and a client."""

    def __init__(self, path: Path, *, token: str | None = None, prefix: str = "", model: Any = None) -> None:
        self.model = model or Pieces(["An answer."])
        self.prefix = prefix
        self._socket = bind("127.0.0.1", 0)
        self.url = url_of(self._socket) + prefix
        self.client = httpx.Client(base_url=self.url, timeout=30)
        self._path = path
        self._token = token
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        assert self._ready.wait(10)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with Relay.open(self._path, model=self.model, max_sessions_per_app=self._limit) as relay:
            app = crp_app(relay, token=self._token, max_sessions=5000, prefix=self.prefix)
            async with serving(app, self._socket):
                self._ready.set()
                await self._stop.wait()

    _limit = 4

    def close(self) -> None:
        self.client.close()
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    def open(self, app_id: str = "test", **body: Any) -> str:
        answer = self.client.post("/sessions", json={"app_id": app_id, **body})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["session_id"])


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    found = Sidecar(tmp_path / "relay.db", prefix="/crp")
    yield found
    found.close()
