"""A small MCP server over streamable HTTP for the tests, and its misbehaviour. Loopback only."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Handler(BaseHTTPRequestHandler):
    mode: ClassVar[str] = "good"
    heard: ClassVar[list[dict[str, Any]]] = []
    target: ClassVar[str] = ""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.heard.append({"method": message.get("method"), "headers": dict(self.headers)})
        if self.mode == "redirect":
            self._send(307, b"", {"location": self.target})
        elif "id" not in message:
            self._send(202, b"", {})
        else:
            self._answer(message)

    def _answer(self, message: dict[str, Any]) -> None:
        calls = message["method"] == "tools/call"
        if calls and self.mode == "silent":
            time.sleep(3)
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": self._result(message)}).encode()
        more = {"content-type": "application/json"}
        if calls and self.mode == "gzip":
            body, more["content-encoding"] = gzip.compress(b" " * 50_000_000), "gzip"
        if calls and self.mode == "huge":
            body = b'"' + b"x" * 20_000_000
        self._send(200, body, more)

    def _result(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["method"] == "initialize":
            version = message["params"]["protocolVersion"]
            about = {"name": "web", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        if message["method"] == "tools/list":
            return {"tools": [{"name": "echo", "description": "Says it again.", "inputSchema": TEXT}]}
        return {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}

    def do_GET(self) -> None:
        self._send(405, b"", {})

    def do_DELETE(self) -> None:
        self._send(200, b"", {})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the host hung up

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(mode: str, target: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server in this mode: its address, and what it hears."""
    heard: list[dict[str, Any]] = []
    handler = type("Mode", (Handler,), {"mode": mode, "heard": heard, "target": target})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp", heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
