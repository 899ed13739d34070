"""The threads that VMs run on: few, warm, and nobody's own.

A VM belongs to one thread at a time, and to whichever is at hand: the one that ran last is awake still, and runs the
next VM without being woken. A thread that a VM holds up is missed by nobody; another one takes its place.

R1  a thread has one owner's work at a time, and an owner's work one thread at a time.
R2  the thread that was free last is taken first; when none is free, there is a new one.
R3  a thread without work sleeps after `LINGERING`; of those that sleep, `MAX_FREE` are kept.
R4  when the last owner of an event loop has ended, its threads end.
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
    """An owner with something to do."""

    @property
    def patient(self) -> bool:
        """Whether it is worth while to stay awake for what it wants next."""

    def work_off(self, line: Line | None, free: Callable[[], None]) -> bool:
        """Do all of it, and say so before the last result is told: `free`.

        True when somebody watches `line` for the result and is still to be told.
        """


class Runner:
    """One thread: it is given an owner, does its work, and is free again."""

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
        """Something to do, or None: then it ends. Without `tell`, whoever gives it tells the thread himself."""
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
        """What it is given from here on waits until it has told what it has done."""
        self._ends = not self._runners.put(self)

    def _next(self, answered: bool) -> Work | None:
        """What is given next: watched for, then slept for (R3)."""
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
        """A thread that has nothing to do (R2)."""
        with self._lock:
            if self._free:
                return self._free.pop()
        return Runner(self)

    def put(self, runner: Runner) -> bool:
        """It is free again; False when it is not needed any more and is to end (R3, R4)."""
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
