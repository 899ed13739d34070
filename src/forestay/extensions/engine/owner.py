"""The owner of a VM: it does everything that touches the VM, in order, on one thread at a time.

The threads are few, warm and shared: a VM runs on any of them. The thread that ran last is still awake and runs the
next VM without being woken. When a VM blocks its thread, another thread takes over the other VMs.

O1  Work is done in the order in which it was submitted, and its results reach the event loop in that order.
O2  The event loop waits for a result for `ATTENTION` at most, and only when it has nothing else to do. After
    `MAX_STREAK` such results in a row it turns to everything else first. It waits ever more rarely for a slow VM.
O3  An owner without work has no thread.
O4  Each result is handed over once, by the side that takes the claim: the thread, which then answers at once, or the
    event loop, which then gets the result like any other callback from a thread.
R1  A thread has one owner's work at a time, and an owner's work has one thread at a time.
R2  The thread that became free last is taken first; when none is free, a new one starts.
R3  A thread without work sleeps after `LINGERING`; at most `MAX_FREE` sleeping threads are kept.
R4  When the last owner of an event loop ends, its threads end.

The system needs longer to wake a sleeping thread than a tool call takes. So each side of a hand-over watches a word of
memory for a few dozen microseconds before it sleeps. Python code holds the interpreter lock while it watches, and the
other side needs that lock. The watch is therefore a short WebAssembly function, called with the lock released.
`python -m benchmarks handover` measures what this buys.

W1  A watch ends after a number of turns. It yields its core before it begins and now and then, so that the other
    thread can run on the same core.
W2  The watch itself writes the word that tells the other side. The lock is free then: the other side does not wake up
    only to wait for it.
W3  Fewer threads watch for work than there are cores.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from queue import SimpleQueue
from typing import Any
from weakref import WeakKeyDictionary

import wasmtime
from wasmtime import _ffi as ffi

from forestay.extensions.engine.native import THREAD_STACK, calls
from forestay.kernel import count_outside, counts_outside, outside_work

ATTENTION = 250e-6  # long enough for a tool that looks at a file or two
MAX_STREAK = 10
MAX_SKIPPED = 64
LINGERING = 200e-6
MAX_FREE = 8
MAX_WATCHING = 4
_PAGES = 4
_LINE = 64  # words of different owners lie in different cache lines
_CALIBRATION = 2_000
_PERIOD = 4095  # turns between two yields, less one: some 50 microseconds
# The turns divide by one: that takes long, and leaves a shared core to the thread that it waits for.
_PROGRAM = f"""(module
  (import "forestay" "words" (memory {_PAGES} {_PAGES} shared))
  (import "forestay" "yield" (func $yield))
  (func (export "watch")
    (param $tell i32) (param $value i32) (param $watched i32) (param $seen i32) (param $turns i32) (param $one i32)
    (result i32)
    (i32.atomic.store (local.get $tell) (local.get $value))
    (call $yield)
    (loop $again
      (if (i32.ne (i32.atomic.load (local.get $watched)) (local.get $seen)) (then (return (i32.const 1))))
      (if (i32.eqz (i32.and (local.get $turns) (i32.const {_PERIOD}))) (then (call $yield)))
      (local.set $turns (i32.sub (i32.div_u (i32.div_u (i32.div_u (i32.div_u
        (local.get $turns) (local.get $one)) (local.get $one)) (local.get $one)) (local.get $one)) (i32.const 1)))
      (br_if $again (local.get $turns)))
    (i32.const 0)))"""
_starting = threading.Lock()
_Done = Callable[[Any], None]
_Item = tuple[Callable[[], Any], _Done]


class Runner:
    """One thread: it gets an owner, does its work, and is free again."""

    def __init__(self, attention: Attention) -> None:
        self._attention = attention
        self._words = attention.words
        self.line: Line | None = None if self._words is None else self._words.line()
        self._given: SimpleQueue[Owner | None] = SimpleQueue()
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

    def give(self, owner: Owner | None, *, tell: bool = True) -> None:
        """Give it an owner that has work, or None to end it. Without `tell`, the caller wakes the thread itself."""
        self._given.put(owner)
        if tell and self._watching and self.line is not None:
            self.line.ask()

    def _run(self) -> None:
        answered = False
        while (owner := self._next(answered)) is not None:
            try:
                answered = owner.work_off(self.line, self._free)
            except RuntimeError:  # the loop is closed: nobody is interested any more
                break
            self._lingers = owner.patient
            del owner
            if self._ends:
                if answered and self.line is not None:
                    self.line.answer()
                break
        if self._words is not None and self.line is not None:
            self._words.give_back(self.line)

    def _free(self) -> None:
        """Become free; work that is given from here on waits until the last result is handed over."""
        self._ends = not self._attention.put(self)

    def _next(self, answered: bool) -> Owner | None:
        """The next owner that has work: the thread watches for it, then sleeps (R3)."""
        line, found, alone = self.line, self._words, self._attention.working <= 1
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
            line.answer_and_watch(watcher, seen, answered, self._attention.lingering if self._lingers else 1)
        self._watching = False
        found.put(watcher)
        return self._given.get()


class Attention:
    """What an event loop knows of its owners: their threads, how many of them work, how often it waited in a row."""

    def __init__(self, loop: asyncio.AbstractEventLoop, words: Words | None) -> None:
        self.words = words
        self.watcher = None if words is None else words.watcher()
        self.turns = 0 if words is None else words.turns(ATTENTION)
        self.lingering = 0 if words is None else words.turns(LINGERING)
        self.working = 0  # owners whose results it waits for
        self.streak = 0
        self.is_told = counts_outside(loop)  # of work outside
        self._ready = getattr(loop, "_ready", ())  # asyncio's own loop lets itself be looked at; others do not
        self._owners = 0
        self._free: list[Runner] = []
        self._lock = threading.Lock()  # over these two

    def free(self) -> bool:
        """Whether the loop has nothing else to do."""
        return self.watcher is not None and self.working == 0 and not self._ready

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


_attention: WeakKeyDictionary[asyncio.AbstractEventLoop, Attention] = WeakKeyDictionary()


def _attention_of(loop: asyncio.AbstractEventLoop) -> Attention:
    found = _attention.get(loop)
    if found is None:
        found = _attention[loop] = Attention(loop, words())
    return found


class Owner:
    """Runs one piece of work after the other, and hands each result to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: deque[_Item] = deque()
        self._running = False  # a thread has it, and looks for more before it leaves
        self._lock = threading.Lock()  # over these two
        self._answers: SimpleQueue[tuple[_Done, Any]] = SimpleQueue()
        self._claims: deque[None] = deque()
        self._attention = _attention_of(loop)
        self._attention.join()
        self._open = 0  # pieces of work whose results have not reached the loop
        self._misses = self._skip = 0

    @property
    def patient(self) -> bool:
        """Whether it is worth staying awake for its next piece of work."""
        return not self._skip

    @property
    def idle(self) -> bool:
        """Whether all its results have reached the event loop."""
        return not self._open

    # -- the event loop's side --------------------------------------------------------------------------------------

    def submit(self, work: Callable[[], Any], done: _Done) -> None:
        """Do `work`, then `done(result)` on the event loop; what `work` raises is its result."""
        if self._begin(work, done):
            self._attention.take().give(self)

    def exchange(self, work: Callable[[], Any], done: _Done) -> bool:
        """As `submit`, but wait for a moment: whether `done` was called already (O2)."""
        watcher = self._attention.watcher
        if watcher is None or not self._may_wait():
            self.submit(work, done)
            return False
        if not self._begin(work, done):
            return False
        runner = self._attention.take()
        if runner.line is None:
            runner.give(self)
            return False
        self._claims.append(None)
        started = time.perf_counter()
        runner.give(self, tell=False)
        runner.line.ask_and_watch(watcher, self._attention.turns)
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

    def reserve(self) -> bool:
        """Keep an owner without work for another thread; submitted work waits until `release`."""
        if self._open:
            return False
        if self._skip:  # a slow VM does not keep others waiting
            self._skip -= 1
            return False
        with self._lock:
            if self._running:
                return False
            self._running = True
            return True

    def release(self) -> None:
        """End a reservation."""
        with self._lock:
            self._running = bool(self._pending)
            waiting = self._running
        if waiting:
            self._attention.take().give(self)

    def missed(self) -> None:
        """The event loop got no answer of this VM in time: from now on it waits more rarely (O2)."""
        self._misses += 1
        self._skip = min(1 << self._misses, MAX_SKIPPED)

    def leave(self) -> None:
        """Nothing will be submitted any more; what is under way comes to its end."""
        self._attention.leave()

    def attended(self) -> None:
        """The event loop did a piece of work itself instead of waiting for it (O2)."""
        self._attention.streak += 1

    def hurried(self) -> bool:
        """Whether the event loop must turn to everything else before it waits again (O2)."""
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

    def _begin(self, work: Callable[[], Any], done: _Done) -> bool:
        """Have it done; True when a thread has to be given for it."""
        if self._open == 0:
            self._attention.working += 1
            if self._attention.is_told:
                count_outside(self._loop, 1)
        self._open += 1
        with self._lock:
            self._pending.append((work, done))
            running, self._running = self._running, True
        return not running

    def _deliver(self, done: _Done, result: Any) -> None:
        self._open -= 1
        if self._open == 0:
            self._attention.working -= 1
            if self._attention.is_told:
                count_outside(self._loop, -1)
        done(result)

    def _deliver_late(self, done: _Done, result: Any) -> None:
        self._attention.streak = 0
        self._deliver(done, result)

    async def join(self) -> None:
        """Until everything that was submitted is done; nothing may be submitted afterwards."""
        ended: asyncio.Future[None] = self._loop.create_future()
        self.submit(lambda: None, lambda _: None if ended.done() else ended.set_result(None))
        try:
            with outside_work(self._loop):
                await ended
        finally:
            self._attention.leave()

    # -- the thread's side ------------------------------------------------------------------------------------------

    def work_off(self, line: Line | None, free: Callable[[], None]) -> bool:
        """Do everything that is to be done, and call `free` before the last result is handed over.

        True when the event loop watches `line` for the result and still has to be told.
        """
        while True:
            with self._lock:
                work, done = self._pending.popleft()
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - the thread's outermost boundary: the loop gets it
                result = error
            with self._lock:  # a caller that sees the result also sees the owner's state of that moment
                more = bool(self._pending)
                if not more:
                    free()
                    self._running = False
                answered = self._answer(done, result)
            del work, done, result
            if not more:
                return answered
            if answered and line is not None:
                line.answer()

    def _answer(self, done: _Done, result: Any) -> bool:
        """Hand a result over; True when the event loop watches for it and is still to be told."""
        if not self._claims or not self._took_claim():
            self._loop.call_soon_threadsafe(self._deliver_late, done, result)
            return False
        self._answers.put((done, result))
        return True


# Watching for another thread


class Words:
    """Memory that threads watch, and `watching` watchers for threads that wait for work (W3)."""

    def __init__(self, watching: int) -> None:
        config = wasmtime.Config()
        config.wasm_threads = True
        config.shared_memory = True
        self._engine = wasmtime.Engine(config)
        self._module = wasmtime.Module(self._engine, _PROGRAM)
        self._memory = _Shared(self._engine, wasmtime.MemoryType(wasmtime.Limits(_PAGES, _PAGES), shared=True))
        self._linker = wasmtime.Linker(self._engine)
        self._linker.define(wasmtime.Store(self._engine), "forestay", "words", self._memory)
        _define_yield(self._linker)
        size = _PAGES * 65536
        base = ctypes.cast(self._memory.data_ptr(), ctypes.c_void_p).value or 0
        self._words = memoryview((ctypes.c_ubyte * size).from_address(base)).cast("B").cast("I")
        self._free: deque[int] = deque(range(0, size, _LINE))
        self._turns = self._calibrated()
        self._idle: deque[Watcher] = deque(self.watcher() for _ in range(watching))

    def take(self) -> Watcher | None:
        """A watcher for a thread that waits for work, to be put back; None when enough threads watch (W3)."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def put(self, watcher: Watcher) -> None:
        self._idle.append(watcher)

    def watcher(self) -> Watcher:
        store = wasmtime.Store(self._engine)
        function = self._linker.instantiate(store, self._module).exports(store)["watch"]
        assert isinstance(function, wasmtime.Func)
        return Watcher(store, function)

    def line(self) -> Line | None:
        """Two words for one thread, to be given back; None when there are no more."""
        try:
            return Line(self._words, self._free.pop())
        except IndexError:
            return None

    def give_back(self, line: Line) -> None:
        self._free.append(line.address)

    def turns(self, seconds: float) -> int:
        """How many turns of a watch take that long on this machine."""
        return min(max(1, int(seconds * self._turns)), 0xFFFFFFFF)

    def _calibrated(self) -> float:
        watcher, times = self.watcher(), []
        for _ in range(5):
            started = time.perf_counter()
            watcher.watch(0, 0, _LINE, 0, _CALIBRATION)
            times.append(time.perf_counter() - started)
        return _CALIBRATION / min(times)


class Line:
    """Two counters, each written by one side and watched by the other."""

    __slots__ = ("_at", "_words", "address")

    def __init__(self, words: memoryview, address: int) -> None:
        self._words = words
        self.address = address
        self._at = address >> 2
        words[self._at] = words[self._at + 1] = 0

    @property
    def asked(self) -> int:
        return self._words[self._at]

    @property
    def answered(self) -> int:
        return self._words[self._at + 1]

    def ask(self) -> None:
        self._words[self._at] = self.asked + 1 & 0xFFFFFFFF

    def answer(self) -> None:
        self._words[self._at + 1] = self.answered + 1 & 0xFFFFFFFF

    def ask_and_watch(self, watcher: Watcher, turns: int) -> None:
        """Announce work, and wait until it is answered or the turns are over."""
        watcher.watch(self.address, self.asked + 1 & 0xFFFFFFFF, self.address + 4, self.answered, turns)

    def answer_and_watch(self, watcher: Watcher, seen: int, answered: bool, turns: int) -> None:
        """Announce an answer, if there is one, and wait for work that came after `seen`."""
        watcher.watch(self.address + 4, self.answered + answered & 0xFFFFFFFF, self.address, seen, turns)


class Watcher:
    """One thread at a time watches with it."""

    def __init__(self, store: wasmtime.Store, function: wasmtime.Func) -> None:
        self._store = store
        self._function = function._func
        self._raw = (ctypes.c_uint32 * 24)()
        self._trap = ctypes.c_void_p(0)
        self._fixed = (
            ctypes.cast(store._context(), ctypes.c_void_p),
            ctypes.c_void_p(ctypes.addressof(self._function)),
            ctypes.c_void_p(ctypes.addressof(self._raw)),
            ctypes.c_size_t(6),
            ctypes.c_void_p(ctypes.addressof(self._trap)),
        )
        self._invoke = calls.wasmtime_func_call_unchecked

    def watch(self, tell: int, value: int, watched: int, seen: int, turns: int) -> bool:
        """Write `value` to the word `tell`, then wait until the word `watched` is not `seen` (W1, W2)."""
        raw = self._raw
        raw[0], raw[4], raw[8], raw[12], raw[16], raw[20] = tell, value, watched, seen, turns, 1
        failed = self._invoke(*self._fixed)
        assert not failed and not self._trap.value, "a watch cannot trap"
        return bool(raw[0])


class _Shared(wasmtime.SharedMemory):
    def _as_extern(self) -> Any:
        union = ffi.wasmtime_extern_union(sharedmemory=self.ptr())
        return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)


def _define_yield(linker: wasmtime.Linker) -> None:
    """Give the core away: the C library's own function, which has no parameters and answers 0, which is no trap."""
    kind = wasmtime.FuncType([], [])
    found = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0
    error = ffi.wasmtime_linker_define_func_unchecked(
        linker.ptr(),
        ctypes.create_string_buffer(b"forestay"),
        8,
        ctypes.create_string_buffer(b"yield"),
        5,
        kind.ptr(),
        ctypes.cast(found, ffi.wasmtime_func_unchecked_callback_t),
        None,
        ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )
    if error:
        raise wasmtime.WasmtimeError._from_ptr(error)


_making = threading.Lock()


def words() -> Words | None:
    """The words of this process; None where watching would take the core from the watched thread."""
    with _making:
        return _words()


@lru_cache(maxsize=1)
def _words() -> Words | None:
    if sys.platform == "win32":
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2:
        return None
    try:
        return Words(min(cores - 1, MAX_WATCHING))
    except wasmtime.WasmtimeError:  # no memory that threads share, on this system
        return None
