"""One VM with its event loop: the deterministic unit that is ticked, recorded, replayed and snapshotted.

It is synchronous and belongs to one thread. What happens to it arrives through `arrive`; what it wants comes back as
effects. What the VM can learn from outside while it runs (time, chance, the time zone, synchronous host calls) passes
through its `VmInputs` alone, so that a run can be recorded and repeated (Pi §1A.4.6).

The loop (Pi §1A.4.5) is a state machine that decides what runs next and does nothing else. It reads no clock: time is
an argument. Equal states and equal arguments give equal results.

    I1  single macrotask: a step yields at most one macrotask.
    I2  microtask fixpoint: the step that runs a macrotask drains the microtasks before the next step (`Isolate.tick`).
    I3  stable timers: timers with equal deadlines fire in the order in which they were armed.
    I4  no re-entrancy: what arrives is queued; nothing runs until the next step.
    I5  total order: every queued macrotask has its own `seq`, and macrotasks run in the order of `seq`.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from forestay.extensions.effects import (
    MAX_FAILURES,
    Clear,
    Effect,
    Failure,
    Reply,
    Timer,
    few,
    read_effects,
    read_error,
)
from forestay.extensions.engine import snapshot as vm_snapshot
from forestay.extensions.engine.image import base_image
from forestay.extensions.engine.limits import EngineTrap, GuestError, Limits
from forestay.extensions.engine.snapshot import Snapshot
from forestay.extensions.engine.vm import MODULE, Slice, Vm
from forestay.kernel import Clock, Randomness, SystemClock, SystemRandomness

if TYPE_CHECKING:
    from forestay.extensions.compiler.artifact import Artifact


_TICKS_A_SECOND = 10_000


class VmInputs(Protocol):
    """The host of a VM, and the clock of its loop."""

    touched: bool
    """Whether anything was asked: a VM that asked nothing may be kept and used again for another session."""

    def now_ms(self) -> int:
        """The loop's time: monotonic, in milliseconds."""

    def tick_time(self) -> int:
        """The same, where it decides what happens: a trace has it."""

    def clock_ns(self, monotonic: bool) -> int: ...
    def random(self, count: int) -> bytes: ...
    def timezone_offset(self, seconds: int) -> int: ...
    def sync(self, request: bytes) -> bytes: ...


class RealInputs:
    """The machine's clock, chance and zone; `answer` performs a synchronous host call."""

    def __init__(
        self,
        answer: Callable[[bytes], bytes],
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        zone: Callable[[int], int] | None = None,
    ) -> None:
        self.touched = False
        self._answer = answer
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._zone = zone or local_offset
        self._began = self._clock.monotonic()

    def now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def tick_time(self) -> int:
        return self.now_ms()

    def clock_ns(self, monotonic: bool) -> int:
        self.touched = True
        if not monotonic:
            return self._clock.now_ms() * 1_000_000
        # Since this VM began, and coarse: a fine clock would tell an extension of what others do (Pi §2A.4).
        return int((self._clock.monotonic() - self._began) * _TICKS_A_SECOND) * (1_000_000_000 // _TICKS_A_SECOND)

    def random(self, count: int) -> bytes:
        self.touched = True
        return self._randomness.bytes(count)

    def timezone_offset(self, seconds: int) -> int:
        self.touched = True
        return self._zone(seconds)

    def sync(self, request: bytes) -> bytes:
        self.touched = True
        return self._answer(request)


def local_offset(seconds: int) -> int:
    """Seconds east of UTC at that moment, as the machine's zone has it; 0 for moments beyond its calendar."""
    try:
        return time.localtime(seconds).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        return 0


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
        """Whether nothing is queued and no timer is set (wrongly false while a cleared timer is left)."""
        return not self._queue and not self._timers

    def deadline(self) -> int | None:
        """When the next timer is due; None when none is set."""
        while self._timers and self._armed.get(self._timers[0][2]) != self._timers[0][1]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def runnable(self, now_ms: int) -> bool:
        """Whether a step would run something (wrongly true when only a cleared timer is queued)."""
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


class Program(msgspec.Struct, frozen=True):
    """A compiled extension: one ES module as text or as this engine's bytecode, and its source map."""

    name: str
    digest: str
    text: str = ""
    bytecode: bytes = b""
    source_map: str = ""

    @classmethod
    def of(cls, artifact: Artifact) -> Program:
        """What the engine runs of a compiled artifact."""
        meta = artifact.meta
        bytecode = artifact.bytecode or b""
        return cls(meta.entry_module, meta.hash, artifact.code.decode(), bytecode, artifact.source_map.decode())


class Frozen(msgspec.Struct, frozen=True):
    """An isolate as data."""

    vm: Snapshot
    loop: LoopState


BATCH_SECONDS = 0.05  # then the event loop hears what happened, even if there is more to run
Arrival = tuple[Kind, int, str, bytes]


class Batch(msgspec.Struct):
    """What came of some ticks."""

    effects: list[Effect]
    more: bool = False
    deadline_ms: int | None = None
    trap: EngineTrap | None = None


class Observer(Protocol):
    """Sees each step; `trace.Recorder` is one."""

    def arrived(self, task: Macrotask) -> None: ...
    def started(self, task: Macrotask) -> None: ...
    def finished(self, jobs: int, outbox: bytes, unhandled: list[bytes]) -> None: ...
    def trapped(self, trap: EngineTrap) -> None: ...


class Isolate:
    def __init__(
        self, vm: Vm, roots: dict[str, int], loop: Loop, world: VmInputs, observer: Observer | None = None
    ) -> None:
        self._vm = vm
        self._roots = roots
        self._loop = loop
        self._world = world
        self._observer = observer
        self._program: Program | None = None

    @classmethod
    def start(
        cls, world: VmInputs, limits: Limits, observer: Observer | None = None, *, image: Snapshot | None = None
    ) -> Isolate:
        """A new isolate with nothing loaded."""
        image = image or base_image()
        return cls(vm_snapshot.restore(image, world, limits), image.roots, Loop(), world, observer)

    @classmethod
    def thaw(cls, frozen: Frozen, world: VmInputs, limits: Limits, observer: Observer | None = None) -> Isolate:
        """The isolate of a snapshot, going on where it was."""
        vm = vm_snapshot.restore(frozen.vm, world, limits)
        return cls(vm, frozen.vm.roots, Loop.from_state(frozen.loop, world.now_ms()), world, observer)

    def freeze(self, over: Snapshot | None = None, *, share: bool = False) -> Frozen:
        """The isolate between two ticks, as data: whole, or as it differs from `over` (`snapshot.take`)."""
        taken = vm_snapshot.take(self._vm, self._roots, over, share=share)
        return Frozen(taken, self._loop.state(self._world.now_ms()))

    def adopt(self, world: VmInputs, observer: Observer | None) -> None:
        """Move to another owner, which has a time of its own."""
        self._loop = Loop.from_state(self._loop.state(self._world.now_ms()), world.now_ms())
        self._world = self._vm.host = world
        self._observer = observer

    def warm(self) -> None:
        """Touch what every call touches, so that its memory is there when the first call comes."""
        with self._vm.running():
            self._vm.settle(self._roots["collect"])

    def close(self) -> None:
        self._vm.close()

    @property
    def memory_bytes(self) -> int:
        if self._vm.memory.size:
            self._vm.memory.refresh()
        return self._vm.memory.size

    # -- the loop ---------------------------------------------------------------------------------------------------

    def prepare(self, program: Program) -> None:
        """Keep the program that the event `load` evaluates."""
        self._program = program

    def load(self, program: Program, number: int, environment: bytes) -> None:
        """Queue the loading of a program; its reply has `number`."""
        self.prepare(program)
        self.arrive("inbound", number, "load", environment)

    def arrive(self, kind: Kind, number: int, name: str = "", body: bytes = b"null") -> None:
        task = self._loop.arrive(kind, number, name, body)
        if self._observer is not None:
            self._observer.arrived(task)

    def run(self, arrivals: Iterable[Arrival]) -> Batch:
        """Ticks until nothing is left to run, or it is time to report."""
        batch = Batch([])
        try:
            for arrival in arrivals:
                self.arrive(*arrival)
            until = time.monotonic() + BATCH_SECONDS
            while (found := self.tick()) is not None:
                batch.effects.extend(found)
                if self._loop.empty:  # nothing is left to run, now or later, until something arrives
                    return batch
                if time.monotonic() > until:
                    break
            batch.more, batch.deadline_ms = self.runnable(), self.deadline()
        except EngineTrap as trap:
            if self._observer is not None:
                self._observer.trapped(trap)
            batch.trap = trap
        return batch

    def runnable(self) -> bool:
        return self._loop.runnable(self._world.now_ms())

    def deadline(self) -> int | None:
        return self._loop.deadline()

    def tick(self) -> list[Effect] | None:
        """One macrotask and all its microtasks (I1, I2); what came of it, or None when nothing was to be run."""
        task = self._loop.step(self._world.tick_time())
        if task is None:
            return None
        if self._observer is not None:
            self._observer.started(task)
        jobs, outbox, thrown, unhandled = self._execute(task)
        if self._observer is not None:
            self._observer.finished(jobs, outbox, unhandled)
        effects = _told_in_few(read_effects(outbox))
        effects.extend(Failure("unhandled", read_error(text)) for text in unhandled)
        if thrown is not None:
            effects.append(_failure(task, thrown))
        self._apply(effects)
        return effects

    def _named(self, effect: Reply) -> Reply:
        """Without memory even for an error object, the engine throws null: say what it was."""
        null = isinstance(effect.value, dict) and effect.value.get("message") == "null"
        if not null or self.memory_bytes < self._vm.limits.memory_bytes * 3 // 4:
            return effect
        return Reply(effect.number, 0, {"name": "InternalError", "message": "out of memory", "stack": ""})

    def _execute(self, task: Macrotask) -> Slice:
        """Run the macrotask and its microtasks in one slice."""
        vm, roots = self._vm, self._roots
        collect, describe = roots["collect"], roots["describe"]
        if task.kind == "inbound":
            if task.name == "load":
                with vm.running():
                    thrown = self._evaluate(task)
                    vm.check()
                    return Slice(*vm.settle(collect), thrown, vm.unhandled(describe))
            text = b'["%s",%d,%s]' % (task.name.encode(), task.number, task.body)
        elif task.kind == "timer":
            text = b'["timer",0,%d]' % task.number
        else:
            text = b'["result",%d,%s]' % (task.number, task.body)
        return vm.slice(roots["deliver"], collect, describe, text)

    def _evaluate(self, task: Macrotask) -> GuestError | None:
        """Evaluate the program; what it threw."""
        program = self._program
        assert program is not None, "nothing to load"
        vm = self._vm
        try:
            vm.call_text(self._roots["deliver"], b'["environment",0,%s]' % task.body)
            if program.bytecode:
                module = vm.evaluate_bytecode(program.bytecode)
            else:
                module = vm.evaluate(program.text, program.name, MODULE)
            message = vm.new_string(b"%d" % task.number)
            vm.free(vm.call(self._roots["begin"], message, module))
            vm.free(message)
            vm.free(module)
        except GuestError as error:
            return error
        return None

    def _apply(self, effects: list[Effect]) -> None:
        """Timers are the loop's; their time counts from the end of the tick, so that none fires early."""
        now = None
        for index, effect in enumerate(effects):
            if isinstance(effect, Reply):
                effects[index] = effect if effect.ok else self._named(effect)
            elif isinstance(effect, Timer):
                now = self._world.tick_time() if now is None else now
                self._loop.arm(effect.number, effect.delay_ms, now)
            elif isinstance(effect, Clear):
                self._loop.clear(effect.number)


def _failure(task: Macrotask, error: GuestError) -> Effect:
    """What a macrotask threw outside of any handler."""
    described = read_error(error.description)
    return Reply(task.number, 0, described) if task.kind == "inbound" else Failure(task.kind, described)


def _told_in_few(effects: list[Effect]) -> list[Effect]:
    """The effects of a tick, with the first of many failures and their number instead of all of them."""
    failures = [effect for effect in effects if isinstance(effect, Failure)]
    if len(failures) <= MAX_FAILURES:
        return effects
    return [effect for effect in effects if not isinstance(effect, Failure)] + [*few(failures)]
