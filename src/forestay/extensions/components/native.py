"""The engine that components run on: one for the process, with everything off that the world does not need."""

from __future__ import annotations

import ctypes
import hashlib
from functools import lru_cache, partial

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime import component as wasm

from forestay.extensions.compiler.artifact import component_engine
from forestay.extensions.components.values import bound, quick
from forestay.extensions.engine.native import Pulse

# A beat is shorter than letting another thread run meanwhile, and waiting for one's turn again.
_beat = bound(quick, "wasmtime_engine_increment_epoch", [ctypes.c_void_p])
STACK = 1024 * 1024
FIBER_STACK = 3 * STACK  # the guest's own, and room for what it calls
_REVISION = 3  # of the settings below: code compiled under others is compiled again


def settings() -> wasmtime.Config:
    """What every engine here is made with. What would use memory that no limit covers, or differ, is off."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.max_wasm_stack = STACK
    config.cranelift_nan_canonicalization = True
    config.wasm_relaxed_simd_deterministic = True
    config.wasm_threads = False
    config.wasm_gc = False
    config.wasm_memory64 = False
    config.wasm_stack_switching = False
    ffi.wasmtime_config_wasm_component_model_async_set(config.ptr(), False)
    ffi.wasmtime_config_concurrency_support_set(config.ptr(), False)
    ffi.wasmtime_config_async_stack_size_set(config.ptr(), FIBER_STACK)
    ffi.wasmtime_config_native_unwind_info_set(config.ptr(), False)  # for debuggers only, and registered at each load
    return config


def module_settings() -> wasmtime.Config:
    """The same for core modules whose memories the host makes: it copies what they begin with."""
    config = settings()
    ffi.wasmtime_config_memory_init_cow_set(config.ptr(), False)
    return config


def engine() -> wasmtime.Engine:
    return wasmtime.Engine(settings())


class Native:
    """The engine of this process, and the pulse of its deadlines."""

    def __init__(self) -> None:
        self.engine = engine()
        self.pulse = Pulse(partial(_beat, ctypes.cast(self.engine.ptr(), ctypes.c_void_p).value))


@lru_cache(maxsize=1)
def native() -> Native:
    return Native()


def machine_code(code: bytes) -> wasm.Component:
    """A component from machine code that our compiler made. The package's own way copies the code once more."""
    made = ctypes.POINTER(ffi.wasmtime_component_t)()
    given = ctypes.cast(ctypes.c_char_p(code), ctypes.POINTER(ctypes.c_uint8))
    failed = ffi.wasmtime_component_deserialize(native().engine.ptr(), given, len(code), ctypes.byref(made))
    if failed:
        raise wasmtime.WasmtimeError._from_ptr(failed)
    return wasm.Component._from_ptr(made)


def compiled_key(component: bytes) -> str:
    """What a compiled form is kept under: the component's bytes, and the engine that compiled it."""
    return hashlib.sha256(f"{component_engine()}/{_REVISION}\0".encode() + component).hexdigest()
