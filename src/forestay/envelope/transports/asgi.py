"""ASGI middleware that checks every JSON answer of an app against the contract, for development (R46)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forestay.envelope.build import failure
from forestay.envelope.conformance import Report, Tier, conform
from forestay.envelope.types import MEDIA_TYPE
from forestay.envelope.validate import MAX_ENVELOPE_BYTES
from forestay.kernel import Clock, Ids, Problem

CHECKED = ("application/json", MEDIA_TYPE)
HEADER = b"lafs-conformance"


class ConformanceMiddleware:
    """Holds each JSON answer back until it is whole, and checks it.

    `refuse` replaces an answer that does not conform by a failure that says why; `report` lets it pass and marks it.
    Streams and other media types go through untouched.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        clock: Clock,
        ids: Ids,
        tier: Tier = "complete",
        mode: Literal["refuse", "report"] = "refuse",
        on_report: Callable[[str, Report], None] | None = None,
    ) -> None:
        self._app = app
        self._clock = clock
        self._ids = ids
        self._tier: Tier = tier
        self._mode = mode
        self._on_report = on_report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "HEAD":
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = bytearray()

        async def checked(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_checked(message):
                start = message
            elif start is None:
                await send(message)
            elif message["type"] == "http.response.body":
                body.extend(message.get("body", b""))
                if not message.get("more_body"):
                    await self._finish(scope["path"], start, bytes(body), send)
                elif len(body) > MAX_ENVELOPE_BYTES:
                    await send(start)
                    await send({"type": "http.response.body", "body": bytes(body), "more_body": True})
                    start = None  # too large to be an envelope of ours: the rest goes through

        await self._app(scope, receive, checked)

    async def _finish(self, path: str, start: Message, body: bytes, send: Send) -> None:
        report = conform(body, self._tier)
        if self._on_report is not None:
            self._on_report(path, report)
        if not report.ok and self._mode == "refuse":
            body = self._refusal(path, report)
            start = {
                **start,
                "status": 500,
                "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
            }
        mark = b"ok" if report.ok else b"failed; " + ",".join(check.name for check in report.failed).encode()
        start = {**start, "headers": [*start["headers"], (HEADER, mark)]}
        await send(start)
        await send({"type": "http.response.body", "body": body})

    def _refusal(self, path: str, report: Report) -> bytes:
        problem = Problem(
            "internal",
            f"The answer of {path[:200]} does not conform to LAFS.",
            failed=[msgspec.to_builtins(check) for check in report.failed],
            fix="Correct the producer; each failed check says why.",
        )
        envelope = failure(problem, "lafs.conformance", transport="http", clock=self._clock, ids=self._ids)
        return msgspec.json.encode(envelope)


def _is_checked(message: Message) -> bool:
    for name, value in message.get("headers", ()):
        if name.lower() == b"content-type":
            return bytes(value).partition(b";")[0].strip().decode("latin-1").lower() in CHECKED
    return False
