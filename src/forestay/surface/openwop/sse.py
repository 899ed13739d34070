"""Server-sent events of a run: four modes, batches, resumption (OpenWOP §1.9, W8, W14).

Invariants:

- S1  A stream shows the events that its modes admit, each once, in the order of the log.
- S2  A batch is sent at once when it holds a suspension or the end of the run, or the stream closes.
- S3  Something is sent at least every 15 seconds.
- S4  The stream closes after the run's terminal event, shown or not.
- S5  A reader that does not read holds back its own stream only: what it has not taken stays in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forestay.kernel import Problem
from forestay.runs import TERMINAL_EVENTS, RunEvent, RunSnapshot
from forestay.surface.exchange import Refused

MODES = ("updates", "values", "messages", "debug")
KEEPALIVE_SECONDS = 15.0
SEND_SECONDS = 120.0
_QUIET = frozenset({"node.started", "node.retried", "variable.changed", "log.appended", "version.pinned"})
_MESSAGES = frozenset(
    {
        "output.chunk",
        "agent.reasoned",
        "agent.reasoning.delta",
        "conversation.opened",
        "conversation.exchanged",
        "conversation.closed",
    }
)
_STREAMED_TEXT = frozenset({"output.chunk", "agent.reasoning.delta"})
# The contract's families of events, without `lease` and `log`, which are the engine's own business.
_FAMILIES = frozenset(
    {
        "run",
        "node",
        "approval",
        "clarification",
        "interrupt",
        "channel",
        "artifact",
        "workflow",
        "cap",
        "replay",
        "agent",
        "provider",
        "prompt",
        "model",
        "envelope",
        "eval",
        "deployment",
        "roster",
        "tool",
        "egress",
        "trigger",
        "budget",
        "runOrchestrator",
        "conversation",
        "memory",
        "commitment",
        "workspace",
        "core",
        "connector",
        "authorization",
        "proposal",
        "goal",
        "import",
    }
)
_encode = msgspec.json.encode
_log = logging.getLogger("forestay.surface")

Snapshot = Callable[[], Awaitable[RunSnapshot]]


def parse_modes(text: str) -> tuple[str, ...]:
    """The modes of `?streamMode=`: one, or a comma list; `values` stands alone."""
    modes = tuple(dict.fromkeys(item.strip() for item in text.split(",")))
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or ("values" in modes and len(modes) > 1):
        what = f"There is no stream mode {unknown[0][:40]!r}." if unknown else "The mode values cannot be combined."
        raise Problem("unsupported_stream_mode", what, supported=list(MODES))
    return modes


def admitting(modes: tuple[str, ...], type: str) -> str | None:
    """The first of `modes` that shows events of this type (S1)."""
    return next((mode for mode in modes if _admits(mode, type)), None)


def _admits(mode: str, type: str) -> bool:
    if mode == "debug":
        return True
    if mode == "messages":
        return type in _MESSAGES
    # A vendor's events and internal ones are for debuggers; `values` sees a node start, `updates` does not.
    if type.split(".", 1)[0] not in _FAMILIES or type in _STREAMED_TEXT:
        return False
    return type not in _QUIET or (mode == "values" and type == "node.started")


async def frames(
    events: AsyncIterator[RunEvent],
    modes: tuple[str, ...],
    *,
    buffer_ms: int = 0,
    snapshot: Snapshot | None = None,
    keepalive: float = KEEPALIVE_SECONDS,
) -> AsyncIterator[bytes]:
    """The bytes of a stream. `snapshot` makes it one of states instead of events (mode `values`)."""
    loop = asyncio.get_running_loop()
    writer = _Writer(modes, buffer_ms / 1000)
    seen = -1
    if snapshot is not None:
        seen, frame = _state(await snapshot())
        yield frame
    last_sent = loop.time()
    waiting: asyncio.Future[RunEvent | None] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(_next(events))
            due = min(last_sent + keepalive, writer.due)
            await asyncio.wait({waiting}, timeout=max(0.0, due - loop.time()))
            out = b""
            ended = False
            if waiting.done():
                event, waiting = waiting.result(), None
                ended = event is None or event.type in TERMINAL_EVENTS
                if event is not None and event.sequence > seen and admitting(modes, event.type):
                    if snapshot is not None:
                        seen, out = _state(await snapshot(), batch=buffer_ms > 0)
                    else:
                        out = writer.add(event, loop.time())
            if ended or loop.time() >= writer.due:  # S2
                out += writer.flush()
            if not out and not ended and loop.time() >= last_sent + keepalive:
                out = b":keepalive\n\n"  # S3
            if out:
                last_sent = loop.time()
                yield out
            if ended:  # S4
                return
    finally:
        if waiting is not None:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await waiting
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


class _Writer:
    """Events as frames: one by one, or a batch that is due `window` seconds after its first event."""

    def __init__(self, modes: tuple[str, ...], window: float) -> None:
        self._modes = modes
        self._window = window
        self._batch: list[Any] = []
        self._last = -1
        self.due = float("inf")

    def add(self, event: RunEvent, now: float) -> bytes:
        """The frame to send now: none while a batch is open, the whole batch when it may not wait (S2)."""
        mode = admitting(self._modes, event.type)
        single = len(self._modes) == 1
        name = _name(event, mode) if single else str(mode)
        body = _body(event, mode)
        if self._window <= 0:
            return _frame(event.sequence, name, _encode(body))
        if not self._batch:
            self.due = now + self._window
        self._batch.append(body)
        self._last = event.sequence
        if event.type in TERMINAL_EVENTS or event.type == "node.suspended":
            return self.flush()
        return b""

    def flush(self) -> bytes:
        batch, self._batch, self.due = self._batch, [], float("inf")
        return _frame(self._last, "batch", _encode(batch)) if batch else b""


async def _next(events: AsyncIterator[RunEvent]) -> RunEvent | None:
    return await anext(events, None)


def _name(event: RunEvent, mode: str | None) -> str:
    return "ai.message.chunk" if mode == "messages" and event.type == "output.chunk" else event.type


def _body(event: RunEvent, mode: str | None) -> Any:
    """The event; a model's text in `messages` mode also has its payload's fields at the top, where readers look."""
    if _name(event, mode) == event.type:
        return event
    body = msgspec.to_builtins(event)
    return {**(event.payload if isinstance(event.payload, dict) else {}), **body, "type": "ai.message.chunk"}


def _state(state: RunSnapshot, *, batch: bool = False) -> tuple[int, bytes]:
    if batch:
        return state.last_sequence, _frame(state.last_sequence, "batch", _encode([state]))
    return state.last_sequence, _frame(state.last_sequence, "state.snapshot", _encode(state))


def _frame(sequence: int, name: str, data: bytes) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (max(sequence, -1), name.encode(), data)


class EventStream(Response):
    """An open answer: sends frames as they come, ends when they end, the reader goes or stops reading (S5)."""

    media_type = "text/event-stream"

    def __init__(self, body: AsyncIterator[bytes], headers: dict[str, str], closing: asyncio.Event) -> None:
        super().__init__(None, 200, headers, media_type=self.media_type)
        self.raw_headers = [item for item in self.raw_headers if item[0] != b"content-length"]
        self._frames = body
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        tasks = [
            asyncio.ensure_future(self._pump(send)),
            asyncio.ensure_future(_gone(receive)),
            asyncio.ensure_future(self._closing.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(results[0], Exception) and not isinstance(results[0], TimeoutError | Refused):
            _log.error("a stream broke off", exc_info=results[0])  # its reader comes back with Last-Event-ID
        if tasks[1].cancelled() and not isinstance(results[0], Refused):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        async with contextlib.aclosing(self._frames) as source:  # type: ignore[type-var]
            async for frame in source:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": frame, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
