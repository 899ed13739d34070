# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""Rounds of an event: as if each extension had been asked by itself, and nobody waits for somebody else (N1 to N4)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.extensions.runtime_world import TableDispatcher, extension, text_of

from forestay.extensions import rounds
from forestay.extensions.engine.limits import Limits
from forestay.extensions.hooks import Hooks
from forestay.extensions.isolate import Isolate
from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.outcomes import Surroundings
from forestay.extensions.protocol import HostCall
from forestay.extensions.rounds import MOST, Rounds
from forestay.kernel import Problem

PATIENCE = 30.0  # of a test that would otherwise hang
EVENT = {"type": "turn_start", "turnIndex": 1}
TOOL = "pi.registerTool({ name: 'go', description: 'd', parameters: { type: 'object' }, execute: async () => ({ content: [{ type: 'text', text: '' + globalThis.seen }] }) });"
LOOKS = "pi.on('turn_start', (e) => { globalThis.seen = (globalThis.seen ?? 0) + e.turnIndex });"
ASKS = "pi.on('turn_start', (e, ctx) => void ctx.sessionManager.getLeafId());"
HANDLERS = {
    "looks": LOOKS,
    "is async": "pi.on('turn_start', async () => { await 0; await 1 });",
    "asks at once": ASKS,
    "asks and waits": "pi.on('turn_start', async () => { await pi.tool('read', { path: 'a' }) });",
    "asks and goes": "pi.on('turn_start', () => { pi.tool('read', { path: 'b' }).catch(() => undefined) });",
    "throws": "pi.on('turn_start', () => { throw new Error('broken') });",
    "rejects": "pi.on('turn_start', async () => { throw new Error('broken later') });",
    "answers with something": "pi.on('turn_start', () => ({ block: true, cancel: true }));",
    "leaves a rejection": "pi.on('turn_start', () => void Promise.reject(new Error('nobody')));",
    "sets a timer": "pi.on('turn_start', () => { setTimeout(() => { globalThis.seen = 'late' }, 60_000) });",
    "registers": "pi.on('turn_start', () => pi.registerCommand('more', { handler: () => undefined }));",
    "has two handlers": LOOKS + LOOKS,
    "has none": "",
    "traps": "pi.on('turn_start', () => { for (;;); });",
    "is never done": "pi.on('turn_start', () => new Promise(() => undefined));",
}


class Street:
    """Extensions on one dispatcher, with the hooks over them, and what was heard of them in order."""

    def __init__(self, sources: list[str], answers: dict[str, Callable[[HostCall], Any]], timeout: float) -> None:
        self.heard: list[tuple[str, ...]] = []
        self.traces: list[list[bytes]] = [[] for _ in sources]

        def session(call: HostCall) -> Any:
            self.heard.append(("call", call.call_id, call.method))
            return answers[call.method](call) if call.method in answers else {"value": 1}

        self.dispatcher = TableDispatcher(session=session, tool=session)
        self.guests = [
            extension(
                f"export default (pi) => {{ {TOOL} {source} }}",
                self.dispatcher,
                name=f"e{number}",
                limits=Limits(memory_mb=32, slice_ms=100),
                record=self.traces[number].append,
                surroundings=Surroundings(f"e{number}", "/project"),
                clock=_Still(),
            )
            for number, source in enumerate(sources)
        ]
        self.hooks = Hooks(
            self.guests,
            timeout=timeout,
            report=lambda name, event, problem: self.heard.append((name, event, problem.key)),
        )


class _Still:
    """Time that stands still, so that two runs leave equal traces."""

    def now_ms(self) -> int:
        return 1_767_225_600_000

    def monotonic(self) -> float:
        return 1_000.0


@asynccontextmanager
async def street(sources: list[str], *, timeout: float = PATIENCE, **answers: Any) -> AsyncIterator[Street]:
    made = Street(sources, answers, timeout)
    for guest in made.guests:
        await guest.load()
        guest._driver._owner._skip = 0  # type: ignore[union-attr] # the load may have kept the loop waiting
    try:
        yield made
    finally:
        for guest in made.guests:
            await guest.close()


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round ends because time has passed."""
    monkeypatch.setattr(rounds, "SLICE", PATIENCE)


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many VMs each round entered."""
    seen: list[int] = []
    plain = Rounds.enter

    async def counted(self: Rounds, places: Any) -> int:
        count = await plain(self, places)
        seen.append(count)
        return count

    monkeypatch.setattr(Rounds, "enter", counted)
    return seen


async def _told(sources: list[str], timeout: float = PATIENCE) -> tuple[list[tuple[str, ...]], list[list[bytes]]]:
    async with street(sources, timeout=timeout) as made:
        for _ in range(2):
            assert await made.hooks.emit(EVENT) is None
            for guest in made.guests:
                if guest._loading is not None:  # it trapped, and starts again
                    await guest._loading
                await guest.settled()
        return made.heard, made.traces


@pytest.mark.parametrize("handler", HANDLERS)
async def test_a_round_tells_what_asking_one_by_one_tells(
    handler: str, entered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N1, N2: equal host calls, reports and traces, whatever one of the extensions does."""
    sources = [LOOKS, ASKS, HANDLERS[handler], ASKS, LOOKS]
    timeout = 0.2 if handler == "is never done" else PATIENCE
    together = await _told(sources, timeout)
    assert sum(entered) > 0
    monkeypatch.setattr(JavaScriptGuest, "place", lambda *_: None)
    entered.clear()
    assert await _told(sources, timeout) == together
    assert not entered


async def test_everybody_is_asked_once_and_in_order(entered: list[int]) -> None:
    count = 2 * MOST + 3
    async with street([ASKS] * count) as made:
        await made.hooks.emit(EVENT)
        assert made.heard == [("call", f"e{number}/1.1", "session") for number in range(count)]
        assert entered == [MOST, MOST, 3]


class Gate:
    """A session that holds the thread of whoever asks it."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, _call: HostCall) -> dict[str, Any]:
        self.reached.set()
        assert self.opened.wait(PATIENCE)
        return {"value": 1}

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, PATIENCE)


@asynccontextmanager
async def held(gate: Gate) -> AsyncIterator[tuple[Street, asyncio.Task[Any]]]:
    """Five extensions in a round of which the third holds the thread."""
    async with street([LOOKS, LOOKS, ASKS, LOOKS, LOOKS], session=gate) as made:
        task = asyncio.create_task(made.hooks.emit(EVENT))
        try:
            await gate.wait()
            yield made, task
        finally:
            gate.opened.set()
            await asyncio.gather(task, return_exceptions=True)


async def test_n4_who_was_asked_before_or_comes_after_can_be_called_meanwhile() -> None:
    async with held(Gate()) as (made, task):
        for number, seen in ((0, "1"), (1, "1"), (3, "undefined"), (4, "undefined")):
            outcome = await asyncio.wait_for(made.guests[number].call_tool("go", {}), PATIENCE)
            assert (number, text_of(outcome)) == (number, seen)
        assert not task.done()
    async with held(gate := Gate()) as (made, task):
        gate.opened.set()
        await task
        assert text_of(await made.guests[4].call_tool("go", {})) == "1"


async def test_n4_who_has_a_place_can_be_closed_meanwhile() -> None:
    async with held(gate := Gate()) as (made, task):
        for number in (0, 4):
            await asyncio.wait_for(made.guests[number].close(), PATIENCE)
        gate.opened.set()
        await task
        assert made.heard[1:] == [("e4", "turn_start", "state_conflict")]
        assert text_of(await made.guests[3].call_tool("go", {})) == "1"


async def test_n4_who_has_a_place_can_be_stopped_meanwhile() -> None:
    async with held(gate := Gate()) as (made, task):
        made.guests[3].stop(Problem("permission_denied", "Off."))
        gate.opened.set()
        await task
        assert made.heard[1:] == [("e3", "turn_start", "permission_denied")]
        assert text_of(await made.guests[4].call_tool("go", {})) == "1"


async def test_n3_a_place_that_was_not_entered_leaves_nothing_behind() -> None:
    async with held(gate := Gate()) as (made, task):
        await made.guests[0].call_tool("go", {})  # breaks the round off
        assert not made.guests[4]._driver._waiters  # type: ignore[union-attr]
        gate.opened.set()
        await task
    alone = await _told([LOOKS, LOOKS, ASKS, LOOKS, LOOKS])
    arrived = [line for line in made.traces[4] if b'"hook"' in line]
    assert arrived == [line for line in alone[1][4] if b'"hook"' in line][:1]


async def test_who_emits_and_is_cancelled_gives_the_round_up() -> None:
    async with held(gate := Gate()) as (made, task):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert text_of(await made.guests[4].call_tool("go", {})) == "undefined"
        gate.opened.set()
        assert text_of(await asyncio.wait_for(made.guests[2].call_tool("go", {}), PATIENCE)) == "undefined"
        assert any(b'"abort"' in line for line in made.traces[2])
        assert not made.guests[2]._driver._waiters  # type: ignore[union-attr]


async def test_what_waits_for_a_person_takes_no_place(entered: list[int]) -> None:
    async with street([LOOKS, LOOKS, LOOKS]) as made:
        made.guests[1].hold(True)
        await made.hooks.emit(EVENT)
        made.guests[1].hold(False)
        assert all(count < 2 for count in entered)
        assert [text_of(await guest.call_tool("go", {})) for guest in made.guests] == ["1"] * 3


async def test_an_event_whose_answers_count_goes_from_one_to_the_next(entered: list[int]) -> None:
    sources = [f"pi.on('tool_call', (e) => {{ e.input.text += '{letter}' }})" for letter in "abc"]
    async with street(sources) as made:
        result = await made.hooks.emit({"type": "tool_call", "toolName": "x", "input": {"text": ""}})
        assert result["input"] == {"text": "abc"}
        assert not entered


async def test_what_the_thread_raises_reaches_who_emits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the host's own: the extension that it hit is started again, the others are asked."""
    plain = Isolate.run

    def broken(isolate: Any, arrivals: Any) -> Any:
        if isolate is victim:
            raise OSError("the host's own fault")
        return plain(isolate, arrivals)

    async with street([LOOKS, LOOKS, LOOKS]) as made:
        victim = made.guests[1]._driver.isolate  # type: ignore[union-attr]
        monkeypatch.setattr(Isolate, "run", broken)
        await made.hooks.emit(EVENT)
        assert made.heard == [("e1", "turn_start", "internal")]
        assert [text_of(await guest.call_tool("go", {})) for guest in made.guests] == ["1", "undefined", "1"]
        assert made.guests[1]._driver.isolate is not victim  # type: ignore[union-attr]
