"""Model servers as a developer's machine has them: what Ollama, LM Studio and llama.cpp answer, each in its dialect."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OLLAMA = {
    "/v1/models": {
        "object": "list",
        "data": [{"id": "qwen3:4b", "object": "model", "created": 1760000000, "owned_by": "library"}],
    }
}
LM_STUDIO = {
    "/v1/models": {
        "data": [
            {"id": "qwen2.5-7b-instruct", "object": "model", "owned_by": "organization_owner"},
            {"id": "gemma-3-12b", "object": "model", "owned_by": "organization_owner"},
        ],
        "object": "list",
    },
    "/api/v0/models": {
        "data": [
            {
                "id": "qwen2.5-7b-instruct",
                "object": "model",
                "type": "llm",
                "publisher": "lmstudio-community",
                "state": "loaded",
                "max_context_length": 131072,
                "loaded_context_length": 16384,
            },
            {
                "id": "gemma-3-12b",
                "object": "model",
                "type": "llm",
                "state": "not-loaded",
                "max_context_length": 131072,
            },
        ],
        "object": "list",
    },
}
LLAMA_CPP = {
    "/v1/models": {
        "object": "list",
        "data": [
            {
                "id": "ggml-model.gguf",
                "object": "model",
                "created": 1760000000,
                "owned_by": "llamacpp",
                "meta": {"n_ctx_train": 131072, "n_params": 4022468096},
            }
        ],
    },
    "/props": {"default_generation_settings": {"id": 0, "n_ctx": 12288}, "total_slots": 1, "model_path": "m.gguf"},
}
SOMETHING_ELSE = {"/v1/models": {"data": [{"id": "a car"}]}}


@contextmanager
def answering(
    documents: Mapping[str, Any],
    says: str = "",
    key: str | None = None,
    plays: Sequence[str] = (),
    refuses: tuple[int, Any] | None = None,
) -> Iterator[str]:
    """A server that answers with `documents`, and says `says` to whoever asks it something; its address.

    It answers questions with the streams of `plays` first, one after the other, or refuses them with a status and a
    body.
    """
    left = list(plays)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if key is not None and self.headers.get("authorization") != f"Bearer {key}":
                self._send(401, {"error": {"message": "no such key", "type": "authentication_error"}})
            elif self.path in documents:
                self._send(200, documents[self.path])
            else:
                self._send(404, {"error": "not found"})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if refuses is not None:
                self._send(*refuses)
                return
            if left:
                self._answer(200, "text/event-stream", left.pop(0).encode())
                return
            common = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            begin = {**common, "choices": [{"index": 0, "delta": {"role": "assistant", "content": says}}]}
            end = {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            counted = {
                **common,
                "choices": [],
                "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
            }
            events = "".join(f"data: {json.dumps(item)}\n\n" for item in (begin, end, counted)) + "data: [DONE]\n\n"
            self._answer(200, "text/event-stream", events.encode())

        def _send(self, status: int, document: Any) -> None:
            if isinstance(document, bytes):
                self._answer(status, "application/octet-stream", document)
                return
            self._answer(status, "application/json", json.dumps(document).encode())

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing is written."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
