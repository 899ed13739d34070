"""A loopback server that speaks both real wire protocols, and fails in every way that providers do.

It checks requests as strictly as the real services: a request that they would refuse gets their 400. It lives on the
test's own event loop, so that the test's clock is its clock.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec


class Reply(msgspec.Struct, frozen=True):
    """What the server does with one request."""

    texts: tuple[str, ...] = ()
    tool_calls: tuple[tuple[str, str, tuple[str, ...]], ...] = ()  # id, name, the arguments' text in fragments
    finish: str | None = None
    usage: tuple[Any, Any] | None = (11, 7)
    hidden: int | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    error: dict[str, Any] | None = None
    cut_after: int | None = None  # events, then the connection breaks
    end_after: int | None = None  # events, then the body ends as if all were said
    then: bytes = b""  # what is sent in place of the events behind `end_after`
    pause_before: tuple[int, float] | None = None  # (event, seconds)
    raw: bytes | None = None  # a body of its own making
    never: bool = False
    model: str = "m"  # what the server says it is
    escaped: bool = True  # JSON strings with \\u escapes, or raw UTF-8
    with_index: bool = True


class Server:
    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.key: str | None = None  # the one that it takes; any, when None
        self.keyless = False  # as a server of one's own: it asks nobody for a key
        self.closed_by_client = asyncio.Event()
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self) -> None:
        self._listener = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop_listening(self) -> None:
        """From now on the port refuses connections, and those that are open are gone."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self.aclose()

    @property
    def openai(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def anthropic(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self.handle(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _request(reader):
                path, headers, body = request
                self.requests.append(body)
                self.headers.append(headers)
                if not await self._answer(path, headers, body, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed_by_client.set()
        finally:
            writer.close()

    async def _answer(
        self, path: str, headers: dict[str, str], body: dict[str, Any], reader: Any, writer: asyncio.StreamWriter
    ) -> bool:
        openai = path == "/v1/chat/completions"
        given = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key")
        if self.key is not None and given != self.key:
            error = {"error": {"message": f"Incorrect key: {given}.", "type": "authentication_error"}, "type": "error"}
            return _whole(writer, 401, (), json.dumps(error).encode())
        if not openai and not self.keyless and not given:
            return _whole(writer, 401, (), b'{"type": "error", "error": {"type": "authentication_error"}}')
        mistake = _openai_mistake(body) if openai else _anthropic_mistake(path, headers, body)
        if mistake:
            error = {"error": {"message": mistake, "type": "invalid_request_error"}, "type": "error"}
            return _whole(writer, 400, (), json.dumps(error).encode())
        if path == "/v1/messages/count_tokens":
            words = json.dumps(body["messages"]).split()
            return _whole(writer, 200, (), json.dumps({"input_tokens": len(words)}).encode())
        reply = self.replies.pop(0)
        if reply.never:
            if not await reader.read(1):
                self.closed_by_client.set()
            return False
        if reply.status != 200:
            return _whole(writer, reply.status, reply.headers, json.dumps(reply.error or {}).encode())
        return await self._stream(reply, events(reply, "openai" if openai else "anthropic"), reader, writer)

    async def _stream(self, reply: Reply, events: list[bytes], reader: Any, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        gone = asyncio.ensure_future(reader.read(1))
        try:
            for number, event in enumerate([reply.raw] if reply.raw is not None else events):
                if reply.pause_before and reply.pause_before[0] == number:
                    done, _ = await asyncio.wait({gone}, timeout=reply.pause_before[1])
                    if done:
                        self.closed_by_client.set()
                        return False
                if number == reply.cut_after:
                    writer.transport.abort()
                    return False
                if number == reply.end_after:
                    event = reply.then
                if event:
                    writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
                    await writer.drain()
                if number == reply.end_after:
                    break
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return False
        finally:
            gone.cancel()


@asynccontextmanager
async def serving(*replies: Reply) -> AsyncIterator[Server]:
    server = Server()
    server.replies.extend(replies)
    await server.listen()
    try:
        yield server
    finally:
        await server.stop_listening()


@contextmanager
def serving_beside(*replies: Reply, key: str | None = None) -> Iterator[Server]:
    """A server on a loop of its own, for tests that look from outside."""
    ready, stop = threading.Event(), threading.Event()
    found: list[Server] = []

    async def main() -> None:
        async with serving(*replies) as server:
            server.key = key
            found.append(server)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(10)
        yield found[0]
    finally:
        stop.set()
        thread.join(20)


async def _request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], dict[str, Any]] | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    path = first.split(" ")[1].partition("?")[0]
    return path, headers, json.loads(body or b"{}")


def _whole(writer: asyncio.StreamWriter, status: int, headers: Any, body: bytes) -> bool:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    writer.write(
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode()
        + body
    )
    return True


def events(reply: Reply, wire: str) -> list[bytes]:
    """The whole answer as its protocol sends it, event by event."""
    return list(_openai_events(reply) if wire == "openai" else _anthropic_events(reply))


def _openai_events(reply: Reply) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        body = {
            "id": "c1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": reply.model,
            "choices": choices,
            **more,
        }
        return b"data: " + json.dumps(body, ensure_ascii=reply.escaped).encode("utf-8", "surrogatepass") + b"\n\n"

    yield chunk({"role": "assistant", "content": ""})
    for text in reply.texts:
        yield chunk({"content": text})
    for index, (call_id, name, fragments) in enumerate(reply.tool_calls):
        place = {"index": index} if reply.with_index else {}
        yield chunk(
            {"tool_calls": [{**place, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}]}
        )
        for fragment in fragments:
            yield chunk({"tool_calls": [{**place, "function": {"arguments": fragment}}]})
    yield chunk({}, reply.finish or ("tool_calls" if reply.tool_calls else "stop"))
    if reply.usage is not None:
        asked, told = reply.usage
        counts: dict[str, Any] = {"prompt_tokens": asked, "completion_tokens": told, "total_tokens": 0}
        if reply.hidden is not None:
            counts["completion_tokens_details"] = {"reasoning_tokens": reply.hidden}
        yield chunk(None, usage=counts)
    yield b"data: [DONE]\n\n"


def _anthropic_events(reply: Reply) -> Iterator[bytes]:
    def event(kind: str, **body: Any) -> bytes:
        text = json.dumps({"type": kind, **body}, ensure_ascii=reply.escaped).encode("utf-8", "surrogatepass")
        return f"event: {kind}\n".encode() + b"data: " + text + b"\n\n"

    asked, told = reply.usage or (0, 0)
    message = {"id": "m1", "type": "message", "role": "assistant", "model": reply.model, "content": [],
               "stop_reason": None, "stop_sequence": None,
               "usage": {"input_tokens": asked, "output_tokens": 1}}  # fmt: skip
    yield event("message_start", message=message)
    yield event("ping")
    index = 0
    if reply.texts:
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for text in reply.texts:
            yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
        yield event("content_block_stop", index=0)
        index = 1
    for call_id, name, fragments in reply.tool_calls:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        yield event("content_block_start", index=index, content_block=block)
        for fragment in fragments:
            yield event(
                "content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": fragment}
            )
        yield event("content_block_stop", index=index)
        index += 1
    stop = reply.finish or ("tool_use" if reply.tool_calls else "end_turn")
    counts: dict[str, Any] = {"output_tokens": told}
    if reply.hidden is not None:
        counts["output_tokens_details"] = {"thinking_tokens": reply.hidden}
    yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=counts)
    yield event("message_stop")


def _openai_mistake(body: dict[str, Any]) -> str | None:
    if not body.get("model") or not body.get("messages"):
        return "model and messages are required"
    open_calls: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                return "a tool message must answer a preceding tool call"
            open_calls.discard(message["tool_call_id"])
            continue
        if open_calls:
            return "every tool call needs a tool message"
        for call in message.get("tool_calls", ()):
            if call["type"] != "function" or not isinstance(call["function"]["arguments"], str):
                return "arguments must be a string"
            open_calls.add(call["id"])
    if any(tool["type"] != "function" for tool in body.get("tools", ())):
        return "tools must be functions"
    return None


def _anthropic_mistake(path: str, headers: dict[str, str], body: dict[str, Any]) -> str | None:
    if path not in ("/v1/messages", "/v1/messages/count_tokens"):
        return f"no route {path}"
    if "anthropic-version" not in headers:
        return "anthropic-version is required"
    unknown = body.keys() - {"model", "max_tokens", "messages", "stream", "system", "tools", "stop_sequences"}
    if unknown:
        return f"unknown fields: {sorted(unknown)}"
    if path == "/v1/messages" and not isinstance(body.get("max_tokens"), int):
        return "max_tokens is required"
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        return "the first message must be the user's"
    open_calls: set[str] = set()
    for before, message in zip([None, *messages], messages, strict=False):
        if message["role"] not in ("user", "assistant") or (before and before["role"] == message["role"]):
            return "roles must alternate between user and assistant"
        if not message["content"] or any(block.get("text") == "" for block in message["content"]):
            return "content must not be empty"
        answered = {block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"}
        if answered != open_calls:
            return "tool_use and tool_result must pair"
        open_calls = {block["id"] for block in message["content"] if block["type"] == "tool_use"}
    return None
