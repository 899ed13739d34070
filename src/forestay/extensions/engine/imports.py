"""The twelve functions that the engine asks its host for (P1): time, chance, a host call, and stubs.

They are shared by all VMs; the VM that runs on the calling thread is found in `current`. A Python error must not
unwind through native frames, so each import keeps it on the VM and stops the engine with a trap instead.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wasmtime import _ffi as ffi

if TYPE_CHECKING:
    from forestay.extensions.engine.vm import Vm

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

        native = _Callback(callback)
        _kept.append(native)
        IMPORTS[module, name] = ctypes.cast(native, ffi.wasmtime_func_unchecked_callback_t)
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
    vm.memory.write_u64(words[8], vm.host.clock_ns(words[0] != 0))
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
