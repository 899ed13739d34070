"""Streams (S1 to S5), over hand-made events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs import RunEvent, RunSnapshot
from forestay.surface.openwop.sse import MODES, EventStream, admitting, frames, parse_modes


def event(sequence: int, type: str, payload: Any = None) -> RunEvent:
    return RunEvent(
        event_id=f"e{sequence}",
        run_id="r",
        type=type,
        payload=payload or {},
        timestamp="2026-01-01T00:00:00.000Z",
        sequence=sequence,
    )


async def source(*steps: RunEvent | float) -> AsyncIterator[RunEvent]:
    for step in steps:
        if isinstance(step, RunEvent):
            yield step
        else:
            await asyncio.sleep(step)


def parsed(frame: bytes) -> tuple[str, str, Any]:
    if frame == b":keepalive\n\n":
        return ("", "keepalive", None)
    fields = dict(line.split(": ", 1) for line in frame.decode().rstrip("\n").split("\n"))
    return (fields["id"], fields["event"], json.loads(fields["data"]))


async def collect(
    *steps: RunEvent | float, modes: str = "updates", **options: Any
) -> list[tuple[float, str, str, Any]]:
    loop = asyncio.get_running_loop()
    return [
        (round(loop.time(), 3), *parsed(frame)) async for frame in frames(source(*steps), parse_modes(modes), **options)
    ]


RUN = (
    event(0, "run.started"),
    event(1, "node.started"),
    event(2, "output.chunk", {"chunk": "Hi", "isLast": True, "nodeId": "n", "runId": "r"}),
    event(3, "log.appended"),
    event(4, "lease.renewed"),
    event(5, "acme.thing.happened"),
    event(6, "eval.scored"),
    event(7, "node.completed"),
    event(8, "run.completed"),
    event(9, "run.annotated"),
)


@pytest.mark.parametrize(
    ("modes", "shown"),
    [
        ("updates", [0, 6, 7, 8]),
        ("debug", [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("messages", [2]),
        ("updates,messages", [0, 2, 6, 7, 8]),
        ("messages, updates", [0, 2, 6, 7, 8]),
        ("updates,debug", [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
async def test_s1_s4_each_mode_shows_its_events_and_closes_at_the_end(modes: str, shown: list[int]) -> None:
    found = await collect(*RUN, modes=modes)
    assert [int(id) for _, id, _, _ in found] == shown


async def test_a_single_mode_names_the_type_and_a_union_the_mode() -> None:
    assert [name for _, _, name, _ in await collect(*RUN)][:2] == ["run.started", "eval.scored"]
    names = [name for _, _, name, _ in await collect(*RUN, modes="updates,messages")]
    assert names == ["updates", "messages", "updates", "updates", "updates"]


async def test_messages_carry_the_text_where_readers_look() -> None:
    ((_, _, name, data),) = await collect(*RUN, modes="messages")
    assert name == data["type"] == "ai.message.chunk"
    assert data["chunk"] == data["payload"]["chunk"] == "Hi"
    assert data["sequence"] == 2


async def test_s2_batches_wait_for_their_window_and_never_hold_a_suspension() -> None:
    found = await collect(
        event(0, "run.started"),
        1.0,
        event(1, "node.completed"),
        event(2, "node.suspended"),
        1.0,
        event(3, "node.resumed"),
        10.0,
        event(4, "node.completed"),
        event(5, "run.completed"),
        buffer_ms=5000,
    )
    assert [(at, id, name, [item["sequence"] for item in data]) for at, id, name, data in found] == [
        (1.0, "2", "batch", [0, 1, 2]),
        (7.0, "3", "batch", [3]),
        (12.0, "5", "batch", [4, 5]),
    ]


async def test_s2_what_is_in_a_batch_is_sent_when_the_source_ends() -> None:
    found = await collect(event(0, "run.started"), buffer_ms=5000)
    assert [(at, name) for at, _, name, _ in found] == [(0.0, "batch")]


async def test_s3_silence_is_filled_even_when_hidden_events_come() -> None:
    hidden = [step for number in range(40) for step in (1.0, event(number, "log.appended"))]
    found = await collect(*hidden, event(40, "run.completed"))
    assert [(at, name) for at, _, name, _ in found] == [
        (15.0, "keepalive"),
        (30.0, "keepalive"),
        (40.0, "run.completed"),
    ]


async def test_values_begins_with_a_state_and_sends_one_after_each_change() -> None:
    last = -1

    async def snapshot() -> RunSnapshot:
        return RunSnapshot(run_id="r", workflow_id="w", status="running", last_sequence=last)

    async def live() -> AsyncIterator[RunEvent]:
        nonlocal last
        for item in RUN:
            last = item.sequence
            yield item

    found = [parsed(frame) async for frame in frames(live(), ("values",), snapshot=snapshot)]
    assert [id for id, _, _ in found] == ["-1", "0", "1", "6", "7", "8"]
    assert {name for _, name, _ in found} == {"state.snapshot"}
    last = 8
    again = [parsed(frame) async for frame in frames(source(*RUN), ("values",), snapshot=snapshot)]
    assert [id for id, _, _ in again] == ["8"]  # the first state was the last


@pytest.mark.parametrize("text", ["", "nothing", "values,updates", "updates,", "UPDATES", "updates,values,debug"])
def test_unknown_modes_and_combinations_are_refused(text: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_modes(text)
    assert caught.value.key == "unsupported_stream_mode"
    assert caught.value.details["supported"] == list(MODES)


def test_modes_are_a_set() -> None:
    assert parse_modes("debug,debug") == ("debug",)
    assert admitting(("messages", "debug"), "run.started") == "debug"


async def test_s5_a_reader_that_stops_reading_ends_its_stream_only() -> None:
    taken: list[int] = []

    async def endless() -> AsyncIterator[RunEvent]:
        for number in range(1_000_000):
            taken.append(number)
            yield event(number, "node.completed")

    async def send(message: Any) -> None:
        if message.get("body"):
            await asyncio.sleep(3600)

    async def receive() -> Any:
        await asyncio.Event().wait()

    stream = EventStream(frames(endless(), ("updates",)), {}, asyncio.Event())
    await stream({"type": "http"}, receive, send)
    assert len(taken) <= 2
    assert asyncio.get_running_loop().time() == 120.0


async def test_a_reader_that_goes_ends_the_source() -> None:
    closed = asyncio.Event()

    async def waiting() -> AsyncIterator[RunEvent]:
        try:
            yield event(0, "run.started")
            await asyncio.Event().wait()
        finally:
            closed.set()

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.sleep(5)
        return {"type": "http.disconnect"}

    await EventStream(frames(waiting(), ("updates",)), {}, asyncio.Event())({"type": "http"}, receive, send)
    assert closed.is_set()
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


async def test_a_closing_host_ends_its_streams_properly() -> None:
    closing = asyncio.Event()

    async def waiting() -> AsyncIterator[RunEvent]:
        closing.set()
        await asyncio.Event().wait()
        yield event(0, "run.started")

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    await EventStream(frames(waiting(), ("updates",)), {}, closing)({"type": "http"}, receive, send)
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
