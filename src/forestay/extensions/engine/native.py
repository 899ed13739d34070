"""The JavaScript engine as native code: compiled once per machine, linked once per process, instantiated per VM.

wasmtime's Python objects cost ten times as much as its C functions, so the crossings use the C functions (P2). There
are two handles on the same library: `calls` releases the GIL, for everything that runs JavaScript; `quick` keeps it,
for the few short functions (make a string, read a string).
"""

from __future__ import annotations

import ctypes
import hashlib
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import wasmtime
from wasmtime import _ffi as ffi

from forestay import assets
from forestay.extensions.engine import crossing
from forestay.extensions.engine.imports import IMPORTS
from forestay.extensions.engine.pulse import Pulse
from forestay.kernel import Problem, write_file

WASM = "quickjs-wasi/quickjs.wasm"
# QuickJS checks its own stack in linear memory; the native stack below it must never overflow first.
NATIVE_STACK = 2 * 1024 * 1024
THREAD_STACK = 4 * NATIVE_STACK

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
