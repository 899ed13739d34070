"""Waits for another thread without sleeping, for a few dozen microseconds.

The system needs longer to wake a sleeping thread than a tool call takes. So each side of a hand-over watches a word of
memory for a moment before it sleeps. Python code holds the interpreter lock while it watches, and the other side needs
that lock. The watch is therefore a short WebAssembly function, called with the lock released.
`python -m benchmarks handover` measures what this buys.

W1  A watch ends after a number of turns. It yields its core before it begins and now and then, so that the other
    thread can run on the same core.
W2  The watch itself writes the word that tells the other side. The lock is free then: the other side does not wake up
    only to wait for it.
W3  Fewer threads watch for work than there are cores.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections import deque
from functools import lru_cache
from typing import Any

import wasmtime
from wasmtime import _ffi as ffi

from forestay.extensions.engine.native import calls

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
