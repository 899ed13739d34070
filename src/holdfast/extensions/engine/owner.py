"""The thread that owns a VM: everything that touches the VM is done here, in order.

O1  work is done in the order in which it was submitted, and its results reach the event loop in that order.
O2  the event loop waits for a result for `ATTENTION` at most, and only when it knows of nothing else to do; after
    `MAX_STREAK` such results in a row it is to look at everything else. It waits ever more rarely for who is slow.
O3  a thread without work sleeps after `LINGERING`.
O4  every result is handed over once, by whoever has taken the claim: the thread, which then answers at once, or the
    event loop, which then hears of it as of anything that other threads tell it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.extensions.engine.handover import Line, Words, words
from holdfast.extensions.engine.native import THREAD_STACK

ATTENTION = 250e-6  # long enough for a tool that looks at a file or two
LINGERING = 200e-6
MAX_STREAK = 10
MAX_SKIPPED = 64
_starting = threading.Lock()
_Done = Callable[[Any], None]
_Item = tuple[Callable[[], Any], _Done]


class Attention:
    """What an event loop knows of its owners: how many work, and how many answers in a row it has waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, words: Words | None) -> None:
        self.watcher = None if words is None else words.watcher()
        self.turns = 0 if words is None else words.turns(ATTENTION)
        self.working = 0
        self.streak = 0
        self._ready = getattr(loop, "_ready", ())  # asyncio's own loop lets itself be looked at; others do not

    def free(self) -> bool:
        """Whether the loop has nothing to do that it knows of."""
        return self.watcher is not None and self.working == 0 and not self._ready


_attention: WeakKeyDictionary[asyncio.AbstractEventLoop, Attention] = WeakKeyDictionary()


def _attention_of(loop: asyncio.AbstractEventLoop) -> Attention:
    found = _attention.get(loop)
    if found is None:
        found = _attention[loop] = Attention(loop, words())
    return found


class Owner:
    """Runs one piece of work after the other, and hands each result to the event loop."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[_Done, Any]] = SimpleQueue()
        self._claims: deque[None] = deque()
        self._attention = _attention_of(loop)
        self._open = 0  # pieces of work whose results have not reached the loop
        self._misses = self._skip = 0
        self._watching = False  # the thread watches for work: it has to be told of it
        self._words = words()
        self._line: Line | None = None if self._words is None else self._words.line()
        self._thread = threading.Thread(target=self._run, name=f"holdfast-vm-{name}"[:60], daemon=True)
        with _starting:  # the size of a new thread's stack is a setting of the process
            before = threading.stack_size(THREAD_STACK)
            try:
                self._thread.start()
            finally:
                threading.stack_size(before)

    # -- the event loop's side --------------------------------------------------------------------------------------

    def submit(self, work: Callable[[], Any], done: _Done) -> None:
        """Do `work`, then `done(result)` on the event loop; what `work` raises is its result."""
        self._begin(work, done)
        if self._watching and self._line is not None:
            self._line.ask()

    def exchange(self, work: Callable[[], Any], done: _Done) -> bool:
        """As `submit`, but wait for a moment: whether `done` was called already (O2)."""
        line, watcher = self._line, self._attention.watcher
        if line is None or watcher is None or not self._may_wait():
            self.submit(work, done)
            return False
        self._begin(work, done)
        self._claims.append(None)
        started = time.perf_counter()
        line.ask_and_watch(watcher, self._attention.turns)
        late = time.perf_counter() - started > 3 * ATTENTION  # others had the core meanwhile: this is no time to wait
        missed = self._answers.empty() and self._took_claim()
        self._misses = self._misses + 1 if missed or late else 0
        self._skip = min(1 << self._misses, MAX_SKIPPED) if self._misses else 0
        if missed:
            return False
        # The thread has taken the claim: its answer is there, or is being put there (O4).
        self._attention.streak += 1
        # As every callback that comes from the thread: in a context of its own, and what it raises is the loop's.
        try:
            contextvars.Context().run(self._deliver, *self._answers.get())
        except Exception as error:  # noqa: BLE001 - as the loop does with its callbacks
            self._loop.call_exception_handler({"message": "A callback of a VM's thread failed.", "exception": error})
        return True

    def hurried(self) -> bool:
        """Whether the event loop is to look at everything else, before it waits for anything again (O2)."""
        if self._attention.streak < MAX_STREAK:
            return False
        self._attention.streak = 0
        return True

    def _took_claim(self) -> bool:
        """Take the claim; False when it is taken already (O4)."""
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def _may_wait(self) -> bool:
        if self._open or not self._attention.free():  # also: no result may overtake another (O1)
            return False
        if self._skip:
            self._skip -= 1
            return False
        return True

    def _begin(self, work: Callable[[], Any], done: _Done) -> None:
        if self._open == 0:
            self._attention.working += 1
        self._open += 1
        self._queue.put((work, done))

    def _deliver(self, done: _Done, result: Any) -> None:
        self._open -= 1
        if self._open == 0:
            self._attention.working -= 1
        done(result)

    def _deliver_late(self, done: _Done, result: Any) -> None:
        self._attention.streak = 0
        self._deliver(done, result)

    def stop(self) -> None:
        """End after the work that is queued."""
        self._queue.put(None)
        if self._line is not None:
            self._line.ask()

    async def join(self) -> None:
        await asyncio.to_thread(self._thread.join)
        line, self._line = self._line, None
        if line is not None and self._words is not None:
            self._words.give_back(line)

    # -- the thread's side ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        answered = False
        while (item := self._next(answered)) is not None:
            work, done = item
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - the thread's outermost boundary: the loop gets it
                result = error
            try:
                answered = self._answer(done, result)
            except RuntimeError:  # the loop is closed: nobody is interested any more
                return
            del item, work, done, result

    def _answer(self, done: _Done, result: Any) -> bool:
        """Hand a result over; True when the event loop watches for it and is still to be told."""
        if not self._claims or not self._took_claim():
            self._loop.call_soon_threadsafe(self._deliver_late, done, result)
            return False
        self._answers.put((done, result))
        return True

    def _next(self, answered: bool) -> _Item | None:
        """The next piece of work: watched for, then slept for (O3)."""
        line, found, alone = self._line, self._words, self._attention.working <= 1
        if line is None or found is None or not (alone or answered):
            return self._queue.get()
        watcher = found.take() if alone else None
        if watcher is None:
            if answered:
                line.answer()
            return self._queue.get()
        seen = line.asked
        self._watching = True  # first this, then a look at the queue: nothing can be submitted unseen between the two
        if answered or self._queue.empty():
            line.answer_and_watch(watcher, seen, answered, found.turns(LINGERING) if not self._skip else 1)
        self._watching = False
        found.put(watcher)
        return self._queue.get()
