"""The JavaScript engine as native code: compiled once per machine, linked once per process, instantiated per VM.

wasmtime's Python objects cost ten times as much as its C functions, so the crossings use the C functions (P2). There
are two handles on the same library: `calls` releases the GIL, for everything that runs JavaScript; `quick` keeps it,
for the few short functions (make a string, read a string).

The engine asks its host for twelve functions (P1): time, chance, a host call, and stubs. All VMs share them; the VM
that runs on the calling thread is found in `current`. A Python error must not unwind through native frames: each
function keeps it on the VM and stops the engine with a trap instead.

Deadlines count the beats of a clock, which ticks while a VM runs and stops a second after the last one ran.

B1  While a VM runs, the clock ticks.
B2  A stopped clock costs nothing: no timer, no processor time.
B3  The clock's thread ends with the last VM.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import wasmtime
from wasmtime import _ffi as ffi

from forestay import assets
from forestay.extensions.engine import crossing
from forestay.extensions.engine.limits import EngineTrap, Limits
from forestay.kernel import Problem, write_file

if TYPE_CHECKING:
    from forestay.extensions.engine.vm import Vm

WASM = "quickjs-wasi/quickjs.wasm"
# QuickJS checks its own stack in linear memory; the native stack below it must never overflow first.
NATIVE_STACK = 2 * 1024 * 1024
THREAD_STACK = 4 * NATIVE_STACK
TICK_SECONDS = 0.01
_QUIET = 100  # beats without a running VM, after which the clock rests
# JavaScript runs inside these, so other threads must be able to; everything else is short.
RUNNING = frozenset((
    "qjs_call", "qjs_execute_pending_job", "qjs_eval", "qjs_eval_bytecode", "qjs_compile", "qjs_init",
    "qjs_get_prop_string",
))  # fmt: skip
EXPORTS = {
    "_initialize": 0, "wasm_malloc": 1, "wasm_free": 1, "qjs_init": 0, "qjs_eval": 4, "qjs_eval_bytecode": 2,
    "qjs_compile": 6, "qjs_call": 4, "qjs_execute_pending_job": 0, "qjs_new_string": 2, "qjs_get_string_len": 2,
    "qjs_free_cstring": 1, "qjs_free_value": 1, "qjs_get_exception": 0, "qjs_get_undefined": 0,
    "qjs_get_global": 0, "qjs_get_prop_string": 2, "qjs_set_prop_string": 3, "qjs_new_host_function": 3,
    "qjs_get_runtime_ptr": 0, "qjs_get_context_ptr": 0, "qjs_set_runtime_and_context": 2, "qjs_set_memory_limit": 1,
    "qjs_set_max_stack_size": 1, "qjs_set_interrupt_handler": 1, "qjs_set_promise_rejection_handler": 1,
    "qjs_get_value_ptr": 1, "qjs_run_gc": 0,
}  # fmt: skip
"""The exports of the engine that a VM calls, with the number of their parameters."""

_LIBRARY = str(ffi.filename)
calls = ctypes.CDLL(_LIBRARY)
quick = ctypes.PyDLL(_LIBRARY)
for _handle in (calls, quick):
    _handle.wasmtime_func_call_unchecked.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_size_t, ctypes.c_void_p]
    _handle.wasmtime_func_call_unchecked.restype = ctypes.c_void_p
quick.wasmtime_context_set_epoch_deadline.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
quick.wasmtime_context_set_epoch_deadline.restype = None


class Native:
    """The parts that all VMs of this process share: engine, compiled module, and the pulse of the deadlines."""

    def __init__(self) -> None:
        config = wasmtime.Config()
        config.epoch_interruption = True
        config.max_wasm_stack = NATIVE_STACK
        config.cranelift_nan_canonicalization = True  # a replay must also repeat the bits of a NaN
        self.engine = wasmtime.Engine(config)
        wasm = assets.asset(WASM).read_bytes()
        self.digest = hashlib.sha256(wasm + version("wasmtime").encode()).hexdigest()
        self.module = _compiled(self.engine, wasm, self.digest)
        linker = wasmtime.Linker(self.engine)
        for kind in self.module.imports:
            _define(linker, str(kind.module), str(kind.name), kind.type)
        self._pre = linker.instantiate_pre(self.module)
        self.crossing = _compiled(self.engine, *_crossing())
        self.pulse = Pulse(self.engine.increment_epoch)

    def instantiate(self, store: wasmtime.Store) -> Any:
        """Make a new instance in `store`; return the C library's handle."""
        return self._pre.instantiate(store)._instance


@lru_cache(maxsize=1)
def native() -> Native:
    """Return the engine of this process."""
    assets.ensure()
    return Native()


def _crossing() -> tuple[bytes, str]:
    """Return the program of `crossing.py` and its hash."""
    wasm = bytes(wasmtime.wat2wasm(crossing.PROGRAM))
    return wasm, hashlib.sha256(wasm + version("wasmtime").encode()).hexdigest()


def _compiled(engine: wasmtime.Engine, wasm: bytes, digest: str) -> wasmtime.Module:
    """Load the module from the cache of native code; compile and cache it if it is missing."""
    path = assets.folder() / "native" / f"{digest[:24]}.cwasm"
    if path.exists():
        try:
            return wasmtime.Module.deserialize_file(engine, str(path))
        except wasmtime.WasmtimeError:
            pass  # made by another wasmtime or for another processor: compile again
    module = wasmtime.Module(engine, wasm)
    write_file(path, module.serialize())
    return module


def _define(linker: wasmtime.Linker, module: str, name: str, kind: Any) -> None:
    callback = IMPORTS.get((module, name))
    if callback is None:
        raise Problem("internal", f"The engine imports {module}.{name}, which this host does not have.")
    error = ffi.wasmtime_linker_define_func_unchecked(
        linker.ptr(),
        ctypes.create_string_buffer(module.encode()),
        len(module),
        ctypes.create_string_buffer(name.encode()),
        len(name),
        kind.ptr(),
        callback,
        None,
        ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )
    if error:
        raise wasmtime.WasmtimeError._from_ptr(error)


def ended(trap: int | None, error: int | None, limits: Limits) -> EngineTrap:
    """Why a call did not return, of what the library gave instead; which is then freed."""
    if trap:
        found = wasmtime.Trap._from_ptr(ctypes.cast(trap, ctypes.POINTER(ffi.wasm_trap_t)))
        if error:
            ffi.wasmtime_error_delete(ctypes.cast(error, ctypes.POINTER(ffi.wasmtime_error_t)))
        if found.trap_code == wasmtime.TrapCode.INTERRUPT:
            return EngineTrap("timeout", f"the tick took more than {limits.slice_ms} ms")
        if found.trap_code == wasmtime.TrapCode.STACK_OVERFLOW:
            return EngineTrap("stack", "the engine's stack is exhausted")
        return EngineTrap("engine", f"the engine stopped: {found.message.splitlines()[0]}")
    failure = wasmtime.WasmtimeError._from_ptr(ctypes.cast(error or 0, ctypes.POINTER(ffi.wasmtime_error_t)))
    return EngineTrap("engine", str(failure).splitlines()[0])


# What the engine asks for

_SUCCESS, _BADF, _NOSYS = 0, 8, 52
_STRIDE = 4  # a raw value has 16 bytes: four 32-bit words
_Words = ctypes.c_uint32 * (8 * _STRIDE)
# As the library declares it, with addresses as numbers: objects for them would be made at every call.
_Callback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Body = Callable[["Vm", Any], int | None]


class _Current(threading.local):
    vm: Vm | None = None


current = _Current()
IMPORTS: dict[tuple[str, str], Any] = {}
_kept: list[Any] = []  # what native code calls must not be collected


def _import(module: str, name: str) -> Callable[[_Body], _Body]:
    def define(body: _Body) -> _Body:
        def callback(_env: int, _caller: int, raw: int, _count: int) -> int:
            vm = current.vm
            if vm is None:
                return _trap()
            try:
                words = _Words.from_address(raw)
                answer = body(vm, words)
                if answer is not None:
                    words[0] = answer & 0xFFFFFFFF
            except BaseException as error:  # noqa: BLE001 - must not unwind through native frames; raised again outside
                vm.raised = error
                return _trap()
            return 0

        kept = _Callback(callback)
        _kept.append(kept)
        IMPORTS[module, name] = ctypes.cast(kept, ffi.wasmtime_func_unchecked_callback_t)
        return body

    return define


def _trap() -> int:
    message = b"the host failed"
    trap = ffi.wasmtime_trap_new(ctypes.create_string_buffer(message), len(message))
    return ctypes.cast(trap, ctypes.c_void_p).value or 0


@_import("env", "host_call")
def _host_call(vm: Vm, words: Any) -> int:
    return vm.on_host_call(words[0], words[4], words[12], words[16])


@_import("env", "host_interrupt")
def _host_interrupt(vm: Vm, _words: Any) -> int:
    return 1 if vm.on_interrupt() else 0


@_import("env", "host_promise_rejection")
def _host_promise_rejection(vm: Vm, words: Any) -> None:
    vm.on_rejection(words[0], words[4], bool(words[8]))


@_import("env", "host_module_normalize")
def _host_module_normalize(_vm: Vm, _words: Any) -> int:
    return 0  # an artifact is one module: there is nothing to import (Pi §1A.4.3)


@_import("env", "host_module_load")
def _host_module_load(_vm: Vm, _words: Any) -> int:
    return 0


@_import("env", "host_get_timezone_offset")
def _host_get_timezone_offset(vm: Vm, words: Any) -> int:
    seconds = (words[0] << 32) | words[4]
    return vm.host.timezone_offset(seconds - (1 << 64) if seconds >> 63 else seconds)


@_import("wasi_snapshot_preview1", "clock_time_get")
def _clock_time_get(vm: Vm, words: Any) -> int:
    vm.memory.write(words[8], vm.host.clock_ns(words[0] != 0).to_bytes(8, "little"))
    return _SUCCESS


@_import("wasi_snapshot_preview1", "random_get")
def _random_get(vm: Vm, words: Any) -> int:
    vm.memory.write(words[0], vm.host.random(words[4]))
    return _SUCCESS


@_import("wasi_snapshot_preview1", "fd_write")
def _fd_write(vm: Vm, words: Any) -> int:
    """The engine's own messages go nowhere, and are counted as written."""
    total = 0
    for index in range(min(words[8], 64)):
        total += vm.memory.read_u32(words[4] + 8 * index + 4)
    vm.memory.write_u32(words[12], total)
    return _SUCCESS


@_import("wasi_snapshot_preview1", "fd_close")
def _fd_close(_vm: Vm, _words: Any) -> int:
    return _NOSYS


@_import("wasi_snapshot_preview1", "fd_seek")
def _fd_seek(_vm: Vm, _words: Any) -> int:
    return _NOSYS


@_import("wasi_snapshot_preview1", "fd_fdstat_get")
def _fd_fdstat_get(_vm: Vm, _words: Any) -> int:
    return _BADF


# The clock of its deadlines


class Pulse:
    def __init__(self, beat: Callable[[], None], *, tick: float = TICK_SECONDS, quiet: int = _QUIET) -> None:
        self._beat = beat
        self._tick = tick
        self._quiet = quiet
        self._lock = threading.Lock()
        self._live = 0
        self._running: set[object] = set()
        self._wake = threading.Event()
        self.resting = False
        self.thread: threading.Thread | None = None

    def hold(self) -> None:
        """A VM lives."""
        with self._lock:
            self._live += 1
            if self.thread is None:
                self.resting = False
                self.thread = threading.Thread(target=self._work, name="forestay-epoch", daemon=True)
                self.thread.start()

    def release(self) -> None:
        """A VM is gone."""
        with self._lock:
            self._live -= 1
        self._wake.set()

    def begin(self, who: object) -> None:
        """A VM is running, so its deadline must advance (B1)."""
        self._running.add(who)
        if self.resting:  # read after the VM is listed; the thread lists itself as resting before it reads the list
            self._wake.set()

    def end(self, who: object) -> None:
        self._running.discard(who)

    def _work(self) -> None:
        quiet = 0
        while not self._ends():
            if quiet >= self._quiet:
                self._rest()
                quiet = 0
                continue
            time.sleep(self._tick)
            self._beat()
            quiet = 0 if self._running else quiet + 1

    def _ends(self) -> bool:
        with self._lock:
            if self._live > 0:
                return False
            self.thread = None
            return True

    def _rest(self) -> None:
        self._wake.clear()
        self.resting = True
        if not self._running and self._live > 0:
            self._wake.wait()
        self.resting = False
