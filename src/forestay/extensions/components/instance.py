"""One instance of a component: it has its own memories and deadline, and one thread at a time enters it.

M1  Whatever a guest does raises only `EngineTrap`: the instance is lost, and is not entered again (P13).
M2  Its memories together stay within the limit; its tables, handles and stack stay within theirs.
M3  A call has a slice of processor time; the time of its host calls does not count.
M4  Its standard output and error are kept up to a limit, and go to the log.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import wasmtime
from wasmtime import component as wasm

from forestay.extensions.components import fibers
from forestay.extensions.components.functions import Function, Instantiation, Work
from forestay.extensions.components.linked import LinkedComponent, running
from forestay.extensions.components.native import native
from forestay.extensions.components.outside import EXPORTS
from forestay.extensions.components.values import Answer, Argument, set_deadline
from forestay.extensions.effects import MAX_ANSWER
from forestay.extensions.engine.limits import EngineTrap, Limits, TrapKind
from forestay.extensions.engine.pulse import TICK_SECONDS

MAX_TABLES, MAX_TABLE_ELEMENTS, MAX_INSTANCES = 32, 65_536, 128
MAX_HANDLES = 10_000
MAX_OUTPUT = 16_384  # bytes that are kept of the standard output, and of the standard error, of one call
_LATE = "it ran longer than it may at once"
_CAUSES: tuple[tuple[str, TrapKind, str], ...] = (
    ("wasm trap: interrupt", "timeout", _LATE),
    ("call stack exhausted", "stack", "its stack is exhausted"),
    ("memory minimum size", "memory", "it asks for more memory than it may have"),
    ("memory count too high", "memory", "it has more memories than its modules define"),
    ("fuel allocated for hostcalls", "memory", "it hands over more data at once than it may"),
)


Look = Callable[[bytes, bytes], Answer | None]


class Host(Protocol):
    """What a running instance needs from its owner."""

    def clock_ns(self, monotonic: bool) -> int: ...
    def random(self, count: int) -> bytes: ...
    def sync(self, request: bytes) -> bytes:
        """Perform the host call `name` newline `input`; the answer starts with `+` or `-`."""


class Instance:
    """A running component. `refused` is called for every call of a refused import."""

    def __init__(self, component: LinkedComponent, host: Host, limits: Limits, refused: Callable[[str], None]) -> None:
        self.component = component
        self.host = host
        self.limits = limits
        self.lost: EngineTrap | None = None
        self.output: dict[bool, bytearray] = {False: bytearray(), True: bytearray()}
        """The output since the last flush: standard output, and under True standard error."""
        self._refused = refused
        self._handles = 0
        self.asked: fibers.Request | None = None
        """The host call for which its fiber waits."""
        self._deadline = 0.0
        self._store = wasmtime.Store(component.engine)
        self._store.set_limits(
            memory_size=limits.memory_bytes // component.memories,
            memories=component.memories,
            table_elements=MAX_TABLE_ELEMENTS,
            tables=MAX_TABLES,
            instances=MAX_INSTANCES,
        )
        self._context = ctypes.cast(self._store._context(), ctypes.c_void_p).value
        self._look: Look | None = None
        self._made: wasm.Instance | None = None
        self._functions: dict[str, Function] = {}
        self._work: Work | None = None
        self._pulse = native().pulse
        self._pulse.hold()
        if fibers.SUPPORTED:
            fibers.come_back(self._context)
        try:
            self._instantiate()
        except EngineTrap:
            self.close()
            raise

    @property
    def wrote(self) -> bool:
        """Whether there is output to flush."""
        return bool(self.output[False] or self.output[True])

    def call(self, export: str, *arguments: Argument, seconds: float | None = None) -> Answer:
        """Call an export, for at most `seconds` or one slice; a trap ends the instance (M1)."""
        self._begin(export, arguments)
        return self.finish(seconds)

    def attempt(self, export: str, arguments: Sequence[Argument], look: Look, until: float) -> Answer | None:
        """Begin a call of an export; return its answer, or None when it suspended before its end (`fibers.py`).

        `look` answers quick host calls and returns None for the others. A tick before `until` (of
        `time.perf_counter`) is too early: the call then continues until the next one.
        """
        assert fibers.SUPPORTED, "without fibers a call ends on the thread where it begins"
        self._begin(export, arguments)
        self._look = look
        try:
            answer = self.step(1)
            while answer is None and self.asked is None and time.perf_counter() < until:
                answer = self.step(1)
            return answer
        finally:
            self._look = None

    def finish(self, seconds: float | None = None) -> Answer:
        """Finish the current call within `seconds` or one slice; return its answer."""
        whole = self.limits.slice_ms / 1000
        self._deadline = time.monotonic() + (whole if seconds is None else min(seconds, whole))
        while True:
            self.serve()
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise self._lose(EngineTrap("timeout", _LATE))
            answer = self.step(int(left / TICK_SECONDS) + 2)
            if answer is not None:
                return answer

    def serve(self) -> None:
        """Perform the host call for which it waits."""
        asked = self.asked
        if asked is not None and asked.answer is None:
            asked.answer = self.call_host(asked.name, asked.given)

    def close(self) -> None:
        """Free its memory; nothing may be called afterwards."""
        if self._context:
            self._drop()
            self._context = None
            self.lost = self.lost or EngineTrap("engine", "the component is closed")
            self._functions.clear()
            self._store.close()
            self._pulse.release()

    def _instantiate(self) -> None:
        kind = fibers.FiberInstantiation if fibers.SUPPORTED else Instantiation
        work = self._work = kind(self.component.imports.linker, self._store, self.component.code)
        self.finish()
        self._made = work.instance

    def _function(self, export: str) -> Function:
        """Return an export ready to call; look it up on first use."""
        found = self._functions.get(export)
        if found is None:
            assert self._made is not None, "it is instantiated"
            function = self._made.get_func(self._store, self.component.export(export))
            assert function is not None, "its types say that it is there"
            kind = fibers.FiberFunction if fibers.SUPPORTED else Function
            found = self._functions[export] = kind(function, self._store, EXPORTS[export], MAX_ANSWER)
        return found

    def _begin(self, export: str, arguments: Sequence[Argument]) -> None:
        if self.lost is not None:
            raise self.lost
        assert self._work is None, "one call at a time"
        function = self._function(export)
        function.begin(arguments)
        self._work = function

    def step(self, ticks: int) -> Answer | None:
        """Run the current work until it ends, or suspends after `ticks` ticks (`fibers.py`)."""
        work = self._work
        assert work is not None, "nothing is under way"
        before, running.instance = running.instance, self
        self._pulse.begin(self)
        set_deadline(self._context, ticks)
        try:
            if not work.resume():
                return None
            self._work = None
            return work.answer()
        except wasmtime.WasmtimeError as error:
            trap = _trap(str(error))
        except ValueError as error:
            trap = EngineTrap("memory", str(error))
        finally:
            self._pulse.end(self)
            running.instance = before
        raise self._lose(trap)

    def _lose(self, trap: EngineTrap) -> EngineTrap:
        self.lost = trap
        self._drop()
        return trap

    def _drop(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.drop()

    def expire(self) -> None:
        """End its time: the host call that this thread performs is its last."""
        self._deadline = 0.0

    # What the component imports (`linked.Guarded`)

    def look(self, name: bytes, given: bytes) -> Answer | None:
        return None if self._look is None else self._look(name, given)

    def clock_ns(self, monotonic: bool) -> int:
        return self.host.clock_ns(monotonic)

    def random(self, count: int) -> bytes:
        return self.host.random(count)

    def written(self, error: bool, data: bytes) -> None:
        kept = self.output[error]
        kept += data
        del kept[: len(kept) - MAX_OUTPUT]  # the end is the most useful part

    def handle(self, stands_for: int, resource: str) -> wasm.ResourceHost:
        if self._handles >= MAX_HANDLES:
            raise ValueError(f"more than {MAX_HANDLES} handles are open")
        self._handles += 1
        return wasm.ResourceHost.own(stands_for, self.component.imports.resource(resource))

    def released(self) -> None:
        self._handles -= 1

    def refuse(self, name: str) -> str:
        self._refused(name)
        return f"refused: {name}"

    def call_host(self, name: bytes, given: bytes) -> Answer:
        started = time.monotonic()
        answer = self.host.sync(name + b"\n" + given)
        if self._deadline:
            self._deadline += time.monotonic() - started  # M3
        left = self._deadline - time.monotonic()
        set_deadline(self._context, int(left / TICK_SECONDS) + 2 if left > 0 else 0)
        return answer[:1] == b"+", answer[1:]


def _trap(message: str) -> EngineTrap:
    """Return why the engine stopped. Only the last cause counts: a guest chooses the names before it."""
    cause = message.rpartition("Caused by:")[2].strip()
    for text, kind, told in _CAUSES:
        if text in cause:
            return EngineTrap(kind, told)
    return EngineTrap("engine", " ".join(cause.split())[:400])
