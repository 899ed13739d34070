"""The extension event loop (Pi §1A.4.5): a state machine that decides what runs next and does nothing else.

    I1  single macrotask: a step yields at most one macrotask.
    I2  microtask fixpoint: the step that runs a macrotask drains the microtasks before the next step (`Isolate.tick`).
    I3  stable timers: timers with equal deadlines fire in the order in which they were armed.
    I4  no re-entrancy: what arrives is queued; nothing runs until the next step.
    I5  total order: every queued macrotask has its own `seq`, and macrotasks run in the order of `seq`.

The machine reads no clock: time is an argument. Equal states and equal arguments give equal results (§1A.4.6).
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Literal

import msgspec

Kind = Literal["timer", "result", "inbound"]


class Macrotask(msgspec.Struct, frozen=True):
    """One thing to run: a timer that fired, a host call's completion, or an event from outside.

    `number` is the timer's or the call's or the event's id; `name` the kind of an inbound event; `body` is JSON.
    """

    seq: int
    kind: Kind
    number: int
    name: str = ""
    body: bytes = b"null"


class LoopState(msgspec.Struct, frozen=True):
    """The loop as data; deadlines are relative to the moment it was taken, so that it can go on in another process."""

    seq: int
    queue: list[Macrotask]
    timers: list[tuple[int, int, int]]  # remaining ms, seq, timer id


class Loop:
    def __init__(self) -> None:
        self._seq = 0
        self._queue: deque[Macrotask] = deque()
        self._timers: list[tuple[int, int, int]] = []  # deadline ms, seq, timer id
        self._armed: dict[int, int] = {}  # timer id -> seq of its present arming

    # -- what happens to it --------------------------------------------------------------------------------------

    def arrive(self, kind: Kind, number: int, name: str = "", body: bytes = b"null") -> Macrotask:
        """Queue something that came from outside, behind everything queued before (I4, I5)."""
        task = Macrotask(self._next(), kind, number, name, body)
        self._queue.append(task)
        return task

    def arm(self, timer: int, delay_ms: int, now_ms: int) -> None:
        """Set a timer; one that is set already is set anew."""
        seq = self._next()
        self._armed[timer] = seq
        heapq.heappush(self._timers, (now_ms + max(0, delay_ms), seq, timer))

    def clear(self, timer: int) -> None:
        """Remove a timer, also one that is due but has not run."""
        self._armed.pop(timer, None)

    def step(self, now_ms: int) -> Macrotask | None:
        """Move due timers to the queue and take the first macrotask; None when there is nothing to run (I1)."""
        self._fire(now_ms)
        while self._queue:
            task = self._queue.popleft()
            if task.kind != "timer":
                return task
            if self._armed.get(task.number) == _arming(task):
                del self._armed[task.number]
                return task
        return None

    def _fire(self, now_ms: int) -> None:
        """Due timers, in the order of (deadline, seq) (I3)."""
        while self._timers and self._timers[0][0] <= now_ms:
            _, seq, timer = heapq.heappop(self._timers)
            if self._armed.get(timer) == seq:
                task = Macrotask(self._next(), "timer", timer, body=str(seq).encode())
                self._queue.append(task)

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    # -- what can be seen of it ------------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        return self._seq

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def empty(self) -> bool:
        """Whether nothing is queued and no timer is set (one that was cleared may make it say otherwise)."""
        return not self._queue and not self._timers

    def deadline(self) -> int | None:
        """When the next timer is due; None when none is set."""
        while self._timers and self._armed.get(self._timers[0][2]) != self._timers[0][1]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def runnable(self, now_ms: int) -> bool:
        """Whether a step would run something (a cleared timer in the queue may make it say so in vain)."""
        if self._queue:
            return True
        due = self.deadline()
        return due is not None and due <= now_ms

    def state(self, now_ms: int) -> LoopState:
        live = self._armed
        timers = [
            (max(0, at - now_ms), seq, timer) for at, seq, timer in sorted(self._timers) if live.get(timer) == seq
        ]
        queue = [task for task in self._queue if task.kind != "timer" or live.get(task.number) == _arming(task)]
        return LoopState(self._seq, queue, timers)

    @classmethod
    def from_state(cls, state: LoopState, now_ms: int) -> Loop:
        loop = cls()
        loop._seq = state.seq
        loop._queue.extend(state.queue)
        loop._timers = [(now_ms + remaining, seq, timer) for remaining, seq, timer in state.timers]
        heapq.heapify(loop._timers)
        loop._armed = {timer: seq for _, seq, timer in state.timers}
        for task in state.queue:
            if task.kind == "timer":
                loop._armed[task.number] = _arming(task)
        return loop


def _arming(task: Macrotask) -> int:
    """Which arming of its timer a fired timer stands for."""
    return int(task.body)
