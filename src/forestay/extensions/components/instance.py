"""One instance of a component: its own memories, its own deadline, one thread at a time.

M1  Nothing that a guest does raises anything but `EngineTrap`: the instance is lost, and is not entered again (P13).
M2  All its memories together stay within the limit, its tables, handles and stack within theirs.
M3  A call has a slice of processor time; what the host does for the guest meanwhile does not count.
M4  What it writes to standard output and error is kept up to a bound, and given to the log.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Protocol

import wasmtime
from wasmtime import component as wasm

from forestay.extensions.components.linked import EXPORTS, LinkedComponent, running
from forestay.extensions.components.native import native
from forestay.extensions.components.values import Answer, Argument, Function, set_deadline
from forestay.extensions.effects import MAX_ANSWER
from forestay.extensions.engine.limits import EngineTrap, Limits, TrapKind
from forestay.extensions.engine.pulse import TICK_SECONDS

MAX_TABLES, MAX_TABLE_ELEMENTS, MAX_INSTANCES = 32, 65_536, 128
MAX_HANDLES = 10_000
MAX_OUTPUT = 16_384  # bytes of standard output, and of error, that are kept of one call
_ARITY = {name: kind.partition("->")[0].count("string") for name, kind in EXPORTS.items()}
_CAUSES: tuple[tuple[str, TrapKind, str], ...] = (
    ("wasm trap: interrupt", "timeout", "it ran longer than it may at once"),
    ("call stack exhausted", "stack", "its stack is exhausted"),
    ("memory minimum size", "memory", "it asks for more memory than it may have"),
    ("memory count too high", "memory", "it has more memories than its modules define"),
    ("fuel allocated for hostcalls", "memory", "it hands over more data at once than it may"),
)


class Host(Protocol):
    """What an instance asks of its owner while it runs."""

    def clock_ns(self, monotonic: bool) -> int: ...
    def random(self, count: int) -> bytes: ...
    def sync(self, request: bytes) -> bytes:
        """Perform a host call, `name` newline `input`: the answer, behind `+` or `-`."""


class Instance:
    """A running component. `refused` hears of every import that was called and refused."""

    def __init__(self, component: LinkedComponent, host: Host, limits: Limits, refused: Callable[[str], None]) -> None:
        self.component = component
        self.host = host
        self.limits = limits
        self.lost: EngineTrap | None = None
        self.output: dict[bool, bytearray] = {False: bytearray(), True: bytearray()}
        """What was written since the last look: to standard output, and (True) to standard error."""
        self._refused = refused
        self._handles = 0
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
        self._functions: dict[str, Function] = {}
        native().pulse.hold()
        try:
            self._run(limits.slice_ms / 1000, self._instantiate)
        except EngineTrap:
            self.close()
            raise

    def call(self, export: str, *arguments: Argument, seconds: float | None = None) -> Answer:
        """Call an export, for at most `seconds` or one slice; a trap is the end of the instance (M1)."""
        if self.lost is not None:
            raise self.lost
        slice_seconds = self.limits.slice_ms / 1000
        limit = slice_seconds if seconds is None else min(seconds, slice_seconds)
        function = self._functions[export]
        return self._run(limit, lambda: function(*arguments))

    def close(self) -> None:
        """Give back its memory; nothing may be called afterwards."""
        if self._context:
            self._context = None
            self.lost = self.lost or EngineTrap("engine", "the component is closed")
            self._functions.clear()
            self._store.close()
            native().pulse.release()

    def _instantiate(self) -> Answer:
        instance = self.component.linker.instantiate(self._store, self.component.code)
        for name, index in self.component.exports.items():
            function = instance.get_func(self._store, index)
            assert function is not None  # its linking has looked
            answers = EXPORTS[name].endswith(">")
            self._functions[name] = Function(function, self._store, _ARITY[name], MAX_ANSWER, answers)
        return True, b""

    def _run(self, seconds: float, work: Callable[[], Answer]) -> Answer:
        before, running.instance = running.instance, self
        pulse = native().pulse
        pulse.begin(self)
        self._arm(seconds)
        try:
            return work()
        except wasmtime.WasmtimeError as error:
            self.lost = _trap(str(error))
        except ValueError as error:
            self.lost = EngineTrap("memory", str(error))
        finally:
            pulse.end(self)
            running.instance = before
        raise self.lost

    def expire(self) -> None:
        """Its time is over: the host call under way, on this thread, is its last."""
        self._deadline = 0.0

    def _arm(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        set_deadline(self._context, int(seconds / TICK_SECONDS) + 2 if seconds else 0)

    # What the component imports (`linked.Guarded`)

    def clock_ns(self, monotonic: bool) -> int:
        return self.host.clock_ns(monotonic)

    def random(self, count: int) -> bytes:
        return self.host.random(count)

    def written(self, error: bool, data: bytes) -> None:
        kept = self.output[error]
        kept += data
        del kept[: len(kept) - MAX_OUTPUT]  # the end says most

    def handle(self, stands_for: int, resource: str) -> wasm.ResourceHost:
        if self._handles >= MAX_HANDLES:
            raise ValueError(f"more than {MAX_HANDLES} handles are open")
        self._handles += 1
        return wasm.ResourceHost.own(stands_for, self.component.resource(resource))

    def released(self) -> None:
        self._handles -= 1

    def refuse(self, name: str) -> str:
        self._refused(name)
        return f"refused: {name}"

    def call_host(self, name: bytes, given: bytes) -> Answer:
        started = time.monotonic()
        answer = self.host.sync(name + b"\n" + given)
        self._arm(max(0.0, self._deadline - started))  # M3
        return answer[:1] == b"+", answer[1:]


def _trap(message: str) -> EngineTrap:
    """Why the engine stopped. A guest chooses the names before the last cause, and nothing after it."""
    cause = message.rpartition("Caused by:")[2].strip()
    for text, kind, told in _CAUSES:
        if text in cause:
            return EngineTrap(kind, told)
    return EngineTrap("engine", " ".join(cause.split())[:400])
