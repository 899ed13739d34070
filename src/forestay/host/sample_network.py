"""The network for the test seams of outbound calls: a server on loopback, and host names with chosen addresses.

Only a host with the test seams has it. The server keeps the request headers and answers 200. At `/token` it exchanges a
code and its verifier for tokens, once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import parse_qs

import msgspec

from forestay.host.egress import system_look_up
from forestay.kernel import canonical

_LONGEST = 64 * 1024
_SECONDS = 5.0


class SampleTokens(msgspec.Struct, frozen=True):
    """The tokens that a code gives, and what the exchange must present."""

    verifier: str
    redirect: str
    access_token: str
    refresh_token: str
    scope: str


class SampleNetwork:
    """`async with` starts and stops the server; `place` is its `host:port`."""

    def __init__(self) -> None:
        self.place = ""
        self.heads: dict[str, str] = {}
        """The headers of the last request to each path."""
        self.codes: dict[str, SampleTokens] = {}
        self._server: asyncio.Server | None = None
        self._meanings: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LONGEST)
        self.place = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1]
                self.heads[path] = head
                size = re.search(r"\r\ncontent-length: *(\d{1,5})\r\n", head, re.IGNORECASE)
                form = await reader.readexactly(int(size[1]) if size else 0)
                status, answer = self._token(form) if path == "/token" else ("200 OK", {})
                body = canonical.encode(answer)
                writer.write(f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n".encode())
                writer.write(b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (TimeoutError, OSError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the sender gets no answer
        finally:
            writer.close()

    def _token(self, form: bytes) -> tuple[str, dict[str, Any]]:
        """Return a token endpoint's answer to a code."""
        asked = {name: values[0] for name, values in parse_qs(form.decode("latin-1")).items()}
        found = self.codes.pop(asked.get("code", ""), None)
        if found is None or (asked.get("code_verifier"), asked.get("redirect_uri")) != (found.verifier, found.redirect):
            return "400 Bad Request", {"error": "invalid_grant"}
        given = {"access_token": found.access_token, "refresh_token": found.refresh_token, "scope": found.scope}
        return "200 OK", {**given, "token_type": "Bearer", "expires_in": 3600}

    async def look_up(self, host: str, port: int) -> list[str]:
        """Return the addresses of a name: a seam's address, else what the system's resolver says."""
        meant = self._meanings.get(host)
        return [meant] if meant is not None else await system_look_up(host, port)

    @contextmanager
    def meaning(self, host: str, address: str) -> Iterator[None]:
        """Resolve `host` to `address` while the block runs."""
        before = self._meanings.get(host)
        self._meanings[host] = address
        try:
            yield
        finally:
            if before is None:
                self._meanings.pop(host, None)
            else:
                self._meanings[host] = before
