"""The threads that VMs run on: few, warm, and shared.

A VM runs on one thread at a time, on any of them. The thread that ran last is still awake and runs the next VM without
being woken. When a VM blocks its thread, another thread takes over the other VMs.

R1  A thread has one owner's work at a time, and an owner's work has one thread at a time.
R2  The thread that became free last is taken first; when none is free, a new one starts.
R3  A thread without work sleeps after `LINGERING`; at most `MAX_FREE` sleeping threads are kept.
R4  When the last owner of an event loop ends, its threads end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from forestay.extensions.engine.native import THREAD_STACK

if TYPE_CHECKING:
    from forestay.extensions.engine.handover import Line, Words

LINGERING = 200e-6
MAX_FREE = 8
_starting = threading.Lock()


class Work(Protocol):
    """An owner that has work."""

    @property
    def patient(self) -> bool:
        """Whether it is worth staying awake for its next piece of work."""

    def work_off(self, line: Line | None, free: Callable[[], None]) -> bool:
        """Do all of it, and call `free` before the last result is handed over.

        True when the event loop watches `line` for the result and still has to be told.
        """


class Runner:
    """One thread: it gets an owner, does its work, and is free again."""

    def __init__(self, runners: Runners) -> None:
        self._runners = runners
        self._words = runners.words
        self.line: Line | None = None if self._words is None else self._words.line()
        self._given: SimpleQueue[Work | None] = SimpleQueue()
        self._watching = False  # the thread watches for work: it has to be told of it
        self._lingers = True
        self._ends = False
        thread = threading.Thread(target=self._run, name="forestay-vm", daemon=True)
        with _starting:  # the size of a new thread's stack is a setting of the process
            before = threading.stack_size(THREAD_STACK)
            try:
                thread.start()
            finally:
                threading.stack_size(before)

    def give(self, work: Work | None, *, tell: bool = True) -> None:
        """Give it work, or None to end it. Without `tell`, the caller wakes the thread itself."""
        self._given.put(work)
        if tell and self._watching and self.line is not None:
            self.line.ask()

    def _run(self) -> None:
        answered = False
        while (work := self._next(answered)) is not None:
            try:
                answered = work.work_off(self.line, self._free)
            except RuntimeError:  # the loop is closed: nobody is interested any more
                break
            self._lingers = work.patient
            del work
            if self._ends:
                if answered and self.line is not None:
                    self.line.answer()
                break
        if self._words is not None and self.line is not None:
            self._words.give_back(self.line)

    def _free(self) -> None:
        """Become free; work that is given from here on waits until the last result is handed over."""
        self._ends = not self._runners.put(self)

    def _next(self, answered: bool) -> Work | None:
        """The next piece of work: the thread watches for it, then sleeps (R3)."""
        line, found, alone = self.line, self._words, self._runners.working <= 1
        if line is None or found is None or not (alone or answered):
            return self._given.get()
        watcher = found.take() if alone else None
        if watcher is None:
            if answered:
                line.answer()
            return self._given.get()
        seen = line.asked
        self._watching = True  # first this, then a look at the queue: nothing can be given unseen between the two
        if answered or self._given.empty():
            line.answer_and_watch(watcher, seen, answered, found.turns(LINGERING) if self._lingers else 1)
        self._watching = False
        found.put(watcher)
        return self._given.get()


class Runners:
    """The threads of one event loop; `working` counts the owners whose results it waits for."""

    def __init__(self, words: Words | None) -> None:
        self.words = words
        self.working = 0
        self._owners = 0
        self._free: list[Runner] = []
        self._lock = threading.Lock()

    def take(self) -> Runner:
        """A thread without work (R2)."""
        with self._lock:
            if self._free:
                return self._free.pop()
        return Runner(self)

    def put(self, runner: Runner) -> bool:
        """Take a free thread back; False when it is no longer needed and must end (R3, R4)."""
        with self._lock:
            if self._owners == 0 or len(self._free) >= MAX_FREE:
                return False
            self._free.append(runner)
            return True

    def join(self) -> None:
        with self._lock:
            self._owners += 1

    def leave(self) -> None:
        with self._lock:
            self._owners -= 1
            free, self._free = (self._free, []) if self._owners == 0 else ([], self._free)
        for runner in free:
            runner.give(None)
