"""The events of a run as frames of a stream: four modes, batches, resumption (OpenWOP §1.9, W8, W14).

Invariants:

- S1  A stream shows the events that its modes admit, each once, in the order of the log.
- S2  A batch is sent at once when it holds a suspension or the end of the run, or the stream closes.
- S3  Something is sent at least every 15 seconds.
- S4  The stream closes after the run's terminal event, shown or not.
- S5  An annotation is sent when it is made, to streams that show updates. It is no event: it has no id to resume from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from forestay.kernel import Problem
from forestay.runs import TERMINAL_EVENTS, Annotation, RunEvent, RunSnapshot
from forestay.surface.sse import KEEPALIVE, KEEPALIVE_SECONDS, Awaited, frame

MODES = ("updates", "values", "messages", "debug")
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
# The contract's families of events, without `lease` and `log`, which are internal to the engine.
_FAMILIES = frozenset(
    "run node approval clarification interrupt channel artifact workflow cap replay agent provider prompt model "
    "envelope eval deployment roster tool egress trigger budget runOrchestrator conversation memory commitment "
    "workspace core connector authorization proposal goal import".split()
)
_encode = msgspec.json.encode

Snapshot = Callable[[], Awaitable[RunSnapshot]]


def parse_modes(text: str) -> tuple[str, ...]:
    """Return the modes of `?streamMode=`: one, or a comma list; `values` stands alone."""
    modes = tuple(dict.fromkeys(item.strip() for item in text.split(",")))
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or ("values" in modes and len(modes) > 1):
        what = f"There is no stream mode {unknown[0][:40]!r}." if unknown else "The mode values cannot be combined."
        raise Problem("unsupported_stream_mode", what, supported=list(MODES))
    return modes


def admitting(modes: tuple[str, ...], type: str) -> str | None:
    """Return the first of `modes` that shows events of this type, or None (S1)."""
    return next((mode for mode in modes if _admits(mode, type)), None)


def _admits(mode: str, type: str) -> bool:
    if mode == "debug":
        return True
    if mode == "messages":
        return type in _MESSAGES
    # Only `debug` shows a vendor's and internal events; `values` shows a node's start, `updates` does not.
    if type.split(".", 1)[0] not in _FAMILIES or type in _STREAMED_TEXT:
        return False
    return type not in _QUIET or (mode == "values" and type == "node.started")


async def frames(
    events: AsyncIterator[RunEvent | Annotation],
    modes: tuple[str, ...],
    *,
    buffer_ms: int = 0,
    snapshot: Snapshot | None = None,
    keepalive: float = KEEPALIVE_SECONDS,
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a stream; with `snapshot`, of states instead of events (mode `values`)."""
    loop = asyncio.get_running_loop()
    writer = _Writer(modes, buffer_ms / 1000)
    seen = -1
    if snapshot is not None:
        seen, first = _state(await snapshot())
        yield first
    last_sent = loop.time()
    awaited = Awaited(events)
    try:
        ended = False
        while not ended:  # S4
            out = b""
            if await awaited.ready(min(last_sent + keepalive, writer.due) - loop.time()):
                event = awaited.take()
                if isinstance(event, Annotation):
                    out = writer.flush() + writer.notice(event)
                else:
                    ended = event is None or event.type in TERMINAL_EVENTS
                if isinstance(event, RunEvent) and event.sequence > seen and admitting(modes, event.type):
                    if snapshot is not None:
                        seen, out = _state(await snapshot(), batch=buffer_ms > 0)
                    else:
                        out = writer.add(event, loop.time())
            if ended or loop.time() >= writer.due:  # S2
                out += writer.flush()
            if not out and not ended and loop.time() >= last_sent + keepalive:
                out = KEEPALIVE  # S3
            if out:
                last_sent = loop.time()
                yield out
    finally:
        await awaited.close()


class _Writer:
    """Writes events as frames: one by one, or as a batch that is due `window` seconds after its first event."""

    def __init__(self, modes: tuple[str, ...], window: float) -> None:
        self._modes = modes
        self._window = window
        self._batch: list[Any] = []
        self._last = -1
        self.due = float("inf")

    def add(self, event: RunEvent, now: float) -> bytes:
        """Return the frame to send now: none while a batch is open, the whole batch when it must not wait (S2)."""
        mode = admitting(self._modes, event.type)
        single = len(self._modes) == 1
        name = _name(event, mode) if single else str(mode)
        body = _body(event, mode)
        if self._window <= 0:
            return frame(_encode(body), name, event.sequence)
        if not self._batch:
            self.due = now + self._window
        self._batch.append(body)
        self._last = event.sequence
        if event.type in TERMINAL_EVENTS or event.type == "node.suspended":
            return self.flush()
        return b""

    def notice(self, annotation: Annotation) -> bytes:
        """Return the frame of an annotation (S5)."""
        shown = any(mode in ("updates", "debug") for mode in self._modes)
        return frame(_encode(annotation), "run.annotated") if shown else b""

    def flush(self) -> bytes:
        batch, self._batch, self.due = self._batch, [], float("inf")
        return frame(_encode(batch), "batch", self._last) if batch else b""


def _name(event: RunEvent, mode: str | None) -> str:
    return "ai.message.chunk" if mode == "messages" and event.type == "output.chunk" else event.type


def _body(event: RunEvent, mode: str | None) -> Any:
    """Return the event; in `messages` mode a model's text also has its payload's fields at the top level."""
    if _name(event, mode) == event.type:
        return event
    body = msgspec.to_builtins(event)
    return {**(event.payload if isinstance(event.payload, dict) else {}), **body, "type": "ai.message.chunk"}


def _state(state: RunSnapshot, *, batch: bool = False) -> tuple[int, bytes]:
    data, name = (_encode([state]), "batch") if batch else (_encode(state), "state.snapshot")
    return state.last_sequence, frame(data, name, max(state.last_sequence, -1))
