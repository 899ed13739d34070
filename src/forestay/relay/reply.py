"""A stream of events as one reply, and a failure as the last event of a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from forestay.kernel import Problem
from forestay.relay.types import QualityReport, Reply, StreamEvent


async def fold(events: AsyncGenerator[StreamEvent, None]) -> Reply:
    """A stream of events as one reply (C2)."""
    texts: list[str] = []
    report: QualityReport | None = None
    async with aclosing(events):
        async for event in events:
            if event.event_type == "token":
                texts.append(event.data)
            elif event.event_type == "done":
                report = event.data
    assert report is not None, "a stream ends with done, or raises"
    return Reply("".join(texts), report)


async def told(events: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[StreamEvent, None]:
    """Events whose last one is `error` where the dispatch fails."""
    try:
        async with aclosing(events):
            async for event in events:
                yield event
    except Problem as problem:
        yield StreamEvent("error", error_body(problem))


def error_body(problem: Problem) -> dict[str, Any]:
    """`{code, message, details}`, with the partial output as the model wrote it: it is not ours to redact."""
    body = problem.as_crp()
    if "partial_output" in problem.details:
        body["details"]["partial_output"] = problem.details["partial_output"]
    return body
