"""The thread of a VM and the event loop: who waits for whom, and for how long (O1 to O4, W1 to W3)."""

from __future__ import annotations

import asyncio
import contextvars
import random
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import wasmtime
from tests.extensions.runtime_world import TableDispatcher, extension, text_of, tool

from forestay.extensions.engine import owner
from forestay.extensions.engine.limits import Limits
from forestay.extensions.engine.owner import MAX_STREAK, Line, Owner, Words
from forestay.kernel import Problem

PATIENCE = 30.0  # of a test that would otherwise hang


@pytest.fixture(scope="module")
def shared() -> Words:
    return Words(1)


@pytest.fixture
def watched(shared: Words, monkeypatch: pytest.MonkeyPatch) -> Iterator[Words]:
    """Owners that watch, whatever machine this is."""
    monkeypatch.setattr(owner, "words", lambda: shared)
    yield shared


@pytest.fixture
def attentive(watched: Words, monkeypatch: pytest.MonkeyPatch) -> Words:
    """The event loop waits for as long as it takes."""
    monkeypatch.setattr(owner, "ATTENTION", PATIENCE)
    return watched


@pytest.fixture
def watches(watched: Words, monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """Every time that the event loop waited."""
    seen: list[Line] = []
    plain = Line.ask_and_watch

    def counted(line: Line, *rest: Any) -> None:
        seen.append(line)
        plain(line, *rest)

    monkeypatch.setattr(Line, "ask_and_watch", counted)
    return seen


async def _end(*owners: Owner) -> None:
    for subject in owners:
        await subject.join()


def _owner() -> Owner:
    return Owner(asyncio.get_running_loop())


async def test_o2_an_answer_that_comes_in_time_needs_no_turn_of_the_loop(attentive: Words) -> None:
    subject, results = _owner(), []
    assert subject.exchange(lambda: 7, results.append)
    assert results == [7]
    await _end(subject)


async def test_o2_a_thread_that_hangs_does_not_hold_the_loop(watched: Words) -> None:
    subject, gate = _owner(), threading.Event()
    result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    assert not subject.exchange(lambda: gate.wait(PATIENCE), result.set_result)
    assert not result.done()
    gate.set()  # the loop is here although the work is not done
    assert await result is True
    await _end(subject)


async def test_o2_who_is_slow_is_waited_for_ever_more_rarely(watches: list[Line]) -> None:
    subject, waited = _owner(), []
    for number in range(1, 40):
        gate, result = threading.Event(), asyncio.get_running_loop().create_future()
        before = len(watches)
        subject.exchange(lambda gate=gate: gate.wait(PATIENCE), result.set_result)  # type: ignore[misc]
        if len(watches) > before:
            waited.append(number)
        gate.set()
        await result
    assert waited == [1, 4, 9, 18, 35]
    await _end(subject)


async def test_o2_an_answer_in_time_ends_the_restraint(attentive: Words, watches: list[Line]) -> None:
    subject = _owner()
    subject._misses, subject._skip = 5, 1
    assert not subject.exchange(lambda: 1, lambda _: None)
    while subject._open or not subject._attention.free():
        await asyncio.sleep(0)
    for _ in range(3):
        assert subject.exchange(lambda: 1, lambda _: None)
    await _end(subject)


async def test_o2_a_loop_with_other_work_does_not_wait(watches: list[Line]) -> None:
    loop = asyncio.get_running_loop()
    subject, result = _owner(), loop.create_future()
    loop.call_soon(lambda: None)
    assert not subject.exchange(lambda: 1, result.set_result)
    assert await result == 1
    assert not watches
    await _end(subject)


async def test_o2_a_loop_that_waits_for_another_owner_already_does_not_wait(watches: list[Line]) -> None:
    loop, gate = asyncio.get_running_loop(), threading.Event()
    busy, subject = _owner(), _owner()
    first, second = loop.create_future(), loop.create_future()
    busy.submit(lambda: gate.wait(PATIENCE), first.set_result)
    assert not subject.exchange(lambda: 1, second.set_result)
    assert await second == 1
    assert not watches
    gate.set()
    await first
    await _end(busy, subject)


async def test_o2_after_a_row_of_answers_the_loop_is_to_look_around(attentive: Words) -> None:
    subject = _owner()
    for _ in range(MAX_STREAK):
        assert not subject.hurried()
        assert subject.exchange(lambda: 1, lambda _: None)
    assert subject.hurried()
    assert not subject.hurried()
    await _end(subject)


async def test_o1_results_come_in_the_order_of_the_work(watched: Words) -> None:
    chance, subject, results = random.Random(5), _owner(), []
    for number in range(400):
        start = chance.choice((subject.submit, subject.exchange))
        start(lambda number=number: number, results.append)  # type: ignore[misc]
        if chance.random() < 0.2:
            await asyncio.sleep(0)
    await _last(subject)
    assert results == list(range(400))
    await _end(subject)


async def test_r2_owners_that_follow_each_other_share_a_thread(attentive: Words) -> None:
    owners, seen = [_owner() for _ in range(20)], set()
    for subject in owners:
        assert subject.exchange(threading.get_ident, seen.add)
    assert len(seen) == 1
    await _end(*owners)


async def test_r1_owners_that_work_side_by_side_do_not(watched: Words) -> None:
    owners, seen, gate = [_owner() for _ in range(5)], set(), threading.Barrier(5, timeout=PATIENCE)

    def meet() -> int:
        gate.wait()  # which nobody passes alone
        return threading.get_ident()

    for subject in owners:
        subject.submit(meet, seen.add)
    for subject in owners:
        await _last(subject)
    assert len(seen) == 5
    await _end(*owners)


async def test_r1_an_owner_is_never_on_two_threads(watched: Words) -> None:
    chance, owners = random.Random(7), [_owner() for _ in range(4)]
    inside, clashes, done = [0] * 4, [], []

    def work(which: int) -> None:
        inside[which] += 1
        if inside[which] != 1:
            clashes.append(which)
        inside[which] -= 1

    for _ in range(2_000):
        which = chance.randrange(4)
        start = chance.choice((owners[which].submit, owners[which].exchange))
        start(lambda which=which: work(which), done.append)  # type: ignore[misc]
        if chance.random() < 0.1:
            await asyncio.sleep(0)
    for subject in owners:
        await _last(subject)
    assert clashes == [] and len(done) == 2_000
    await _end(*owners)


async def test_r4_no_thread_is_left_when_the_last_owner_ended(watched: Words) -> None:
    subject = _owner()
    found: list[threading.Thread] = []
    subject.submit(threading.current_thread, found.append)
    await _last(subject)
    await _end(subject)
    await asyncio.to_thread(found[0].join, PATIENCE)
    assert not found[0].is_alive()
    again = _owner()  # and there is a new one when somebody needs it
    again.submit(threading.current_thread, found.append)
    await _last(again)
    assert found[1] is not found[0]
    await _end(again)


async def test_o4_what_work_raises_is_its_result(attentive: Words) -> None:
    subject, results = _owner(), []
    error = ValueError("no")

    def fails() -> None:
        raise error

    assert subject.exchange(fails, results.append)
    subject.submit(fails, results.append)
    await _last(subject)
    assert results == [error, error]
    await _end(subject)


async def test_an_answer_in_time_does_not_run_in_the_callers_context(attentive: Words) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")
    name.set("caller")
    subject, seen = _owner(), []
    assert subject.exchange(lambda: 1, lambda _: seen.append(name.get()))
    subject.submit(lambda: 1, lambda _: seen.append(name.get()))
    await _last(subject)
    assert seen == ["nobody", "nobody"]
    await _end(subject)


async def test_what_a_callback_raises_is_the_loops_whoever_waited(attentive: Words) -> None:
    loop, told = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _loop, said: told.append(str(said["exception"])))
    subject = _owner()

    def fails(result: Any) -> None:
        raise ValueError(result)

    assert subject.exchange(lambda: "at once", fails)
    subject.submit(lambda: "later", fails)
    await _last(subject)
    assert told == ["at once", "later"]
    await _end(subject)


@pytest.mark.parametrize("waits", [True, False])
async def test_a_listener_that_fails_takes_nobodys_answer(
    waits: bool, attentive: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not waits:
        monkeypatch.setattr(Owner, "_may_wait", lambda _: False)
    loop, told = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _loop, said: told.append(str(said["exception"])))
    subject = extension(tool("onUpdate({ content: [] }); return 'x'"))
    await subject.load()

    def listener(_: Any) -> None:
        raise ValueError("not today")

    assert text_of(await subject.call_tool("go", {}, on_update=listener)) == "x"
    assert told == ["not today"]
    await subject.close()


@pytest.mark.parametrize("lines", [None, 0])
async def test_without_words_everything_goes_through_the_loop(
    lines: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = None if lines is None else Words(1)
    while found is not None and found.line() is not None:
        pass
    monkeypatch.setattr(owner, "words", lambda: found)
    subject, result = _owner(), asyncio.get_running_loop().create_future()
    assert not subject.exchange(lambda: 3, result.set_result)
    assert await result == 3
    await _end(subject)


async def test_lines_are_given_back(shared: Words, watched: Words) -> None:
    before = len(shared._free)
    subject, other, gate = _owner(), _owner(), threading.Event()
    for one in (subject, other):
        one.submit(lambda: gate.wait(PATIENCE), lambda _: None)
    assert len(shared._free) == before - 2
    gate.set()
    await _end(subject, other)
    while len(shared._free) < before:  # the threads end by themselves (R4)
        await asyncio.sleep(0)


async def test_a_row_of_tool_calls_lets_the_loop_hear_of_everything_else(attentive: Words) -> None:
    subject, loop = extension(tool("return 'x'")), asyncio.get_running_loop()
    await subject.load()
    here, there = socket.socketpair()
    heard: list[bytes] = []
    loop.add_reader(here, lambda: heard.append(here.recv(1)))
    there.send(b"!")
    for _ in range(2 * MAX_STREAK):
        await subject.call_tool("go", {})
    loop.remove_reader(here)
    here.close()
    there.close()
    assert heard == [b"!"]
    await subject.close()


async def test_a_tool_that_never_ends_does_not_hold_the_loop_and_is_stopped(watched: Words) -> None:
    subject = extension(tool("for (;;);"), limits=Limits(slice_ms=300))
    await subject.load()
    turns: list[int] = []
    call = asyncio.create_task(subject.call_tool("go", {}))
    while not call.done():
        await asyncio.sleep(0)
        turns.append(1)
    with pytest.raises(Problem) as caught:
        await call
    assert caught.value.key == "extension_timeout"
    assert len(turns) > 10
    await subject.close()


async def test_a_host_call_ends_with_its_answer_whoever_waited(attentive: Words) -> None:
    dispatcher = TableDispatcher(tool=lambda call: {"value": call.params["input"]["n"]})
    body = "let sum = 0; for (const n of [1, 2, 3]) sum += (await pi.tool('read', { n })).value; return '' + sum"
    subject = extension(tool(body), dispatcher)
    await subject.load()
    assert text_of(await subject.call_tool("go", {})) == "6"
    await subject.close()


async def test_parts_of_a_host_call_are_taken_one_after_the_other(attentive: Words) -> None:
    dispatcher = TableDispatcher(tool=lambda call: [{"part": 1}, {"part": 2}, {"part": 3}])
    body = "const seen = []; await pi.tool('read', {}, { onChunk: (c) => seen.push(c.part) }); return seen.join()"
    subject = extension(tool(body), dispatcher)
    await subject.load()
    assert text_of(await subject.call_tool("go", {})) == "1,2,3"
    await subject.close()


def test_w1_a_watch_ends_by_itself(shared: Words) -> None:
    line = shared.line()
    assert line is not None
    assert not shared.watcher().watch(line.address, 5, line.address + 4, 0, 5_000)
    assert (line.asked, line.answered) == (5, 0)
    shared.give_back(line)


def test_w2_a_watch_tells_and_sees(shared: Words) -> None:
    line = shared.line()
    assert line is not None
    done = threading.Thread(target=lambda: _until(lambda: line.asked == 1) or line.answer())
    done.start()
    line.ask_and_watch(shared.watcher(), shared.turns(PATIENCE))
    done.join()
    assert (line.asked, line.answered) == (1, 1)
    shared.give_back(line)


def test_w2_a_counter_starts_again_after_the_last_number(shared: Words) -> None:
    line = shared.line()
    assert line is not None
    shared.watcher().watch(line.address, 0xFFFFFFFF, line.address, 0, 1)
    line.ask()
    assert line.asked == 0
    shared.give_back(line)


def test_w3_no_more_watch_than_may() -> None:
    some = Words(2)
    first, second = some.take(), some.take()
    assert first is not None and second is not None
    assert some.take() is None
    some.put(first)
    assert some.take() is first


def test_one_core_has_nobody_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner.os, "sched_getaffinity", lambda _: {0}, raising=False)
    owner._words.cache_clear()
    try:
        assert owner.words() is None
    finally:
        owner._words.cache_clear()


def test_where_threads_cannot_share_memory_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> Words:
        raise wasmtime.WasmtimeError("no shared memory")

    monkeypatch.setattr(owner, "Words", refuse)
    monkeypatch.setattr(owner.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    owner._words.cache_clear()
    try:
        assert owner.words() is None
    finally:
        owner._words.cache_clear()


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        pass


async def _last(subject: Owner) -> None:
    """Until everything submitted so far has been heard of."""
    result = asyncio.get_running_loop().create_future()
    subject.submit(lambda: None, result.set_result)
    await result
