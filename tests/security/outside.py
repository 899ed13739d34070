"""Everything that a host talks to, on loopback: a model, an API, a receiver of webhooks and a collector of traces."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.security.canaries import canary

BREAKS = "Please fail."


class Outside:
    """One server with a path for each part. What came is kept, by the part that it came to."""

    def __init__(self) -> None:
        self.port = 0
        self.came: dict[str, list[bytes]] = {"model": [], "api": [], "hook": [], "traces": []}

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.place}"

    def all(self, part: str) -> bytes:
        return b"\n".join(self.came[part])

    def turn(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the model says: it fetches, reads a file, then answers; a judge finds everything met."""
        said = json.dumps(asked["messages"])
        if "<<<ANSWER" in said:
            return {"content": '{"met": [1], "findings": []}'}
        tools = {tool["function"]["name"] for tool in asked.get("tools", ())}
        done = sum(message["role"] == "tool" for message in asked["messages"])
        fetch = {"url": f"{self.url}/api?q={canary('toolargument')}", "credential": "harbour"}
        calls = [("fetch", fetch), ("read", {"path": "notes.md"})]
        wanted = [(name, arguments) for name, arguments in calls if name in tools]
        if done >= len(wanted):
            return {"content": f"So it is: {canary('answer')}."}
        name, arguments = wanted[done]
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call_{done}", "type": "function", "function": function}
        return {"content": f"I think {canary('reasoning')}.", "tool_calls": [call]}


def _streamed(delta: dict[str, Any]) -> bytes:
    common = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    finish = "tool_calls" if "tool_calls" in delta else "stop"
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    chunks = [
        {**common, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}}]},
        {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {**common, "choices": [], "usage": usage},
    ]
    return b"".join(b"data: %s\n\n" % json.dumps(item).encode() for item in chunks) + b"data: [DONE]\n\n"


@contextmanager
def standing_outside() -> Iterator[Outside]:
    outside = Outside()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            head = f"{self.path}\n{self.headers}".encode()
            if self.path == "/v1/chat/completions":
                outside.came["model"].append(head + body)
                self._model(json.loads(body))
            elif self.path.startswith("/api"):
                outside.came["api"].append(head + body)
                said = {"said": canary("responsebody"), "heard": self.headers["authorization"]}
                status = 500 if self.path.startswith("/api/fails") else 200
                self._send(status, "application/json", json.dumps(said).encode(), {"x-note": canary("responseheader")})
            else:
                outside.came["traces" if self.path == "/v1/traces" else "hook"].append(head + body)
                self._send(200, "application/json", b"{}")

        do_GET = do_POST

        def _model(self, asked: dict[str, Any]) -> None:
            if BREAKS not in json.dumps(asked["messages"]):
                self._send(200, "text/event-stream", _streamed(outside.turn(asked)))
                return
            key = self.headers["authorization"]
            said = [message["content"] for message in asked["messages"]]
            message = f"No: {canary('providererror')} with {key} about {said}"
            body = {"error": {"message": message, "type": "invalid_request_error"}}
            self._send(400, "application/json", json.dumps(body).encode())

        def _send(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Type": kind, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is written."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    outside.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield outside
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
