"""A receiver of webhooks on loopback, in a thread: it lives on when the host that calls it is killed."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


class Got(msgspec.Struct, frozen=True):
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document

    @property
    def delivery(self) -> str:
        return self.headers["x-openwop-delivery-id"]

    def is_signed_with(self, secret: str) -> bool:
        stamp = self.headers["x-openwop-timestamp"].encode()
        expected = hmac.new(secret.encode(), stamp + b"." + self.body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(self.headers["x-openwop-signature"], f"sha256={expected}")


class Receiver:
    def __init__(self) -> None:
        self.got: list[Got] = []
        self.url = ""

    def take(self) -> list[Got]:
        """What came since it was last asked."""
        got, self.got = self.got, []
        return got


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            body = self.rfile.read(size)
            if len(body) < size:
                return  # the caller was killed while it sent: a receiver has nothing
            receiver.got.append(Got({name.lower(): value for name, value in self.headers.items()}, body))
            try:
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                pass  # the caller was killed while we answered

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
