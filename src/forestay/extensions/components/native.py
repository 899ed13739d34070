"""The engine for components: one for the process, with every feature off that the world does not need."""

from __future__ import annotations

import ctypes
import hashlib
from functools import lru_cache, partial

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime import component as wasm

from forestay.extensions.compiler.artifact import component_engine
from forestay.extensions.components.values import bound, quick
from forestay.extensions.engine.pulse import Pulse

# A beat keeps the GIL: it is shorter than releasing the GIL and waiting for it again.
_beat = bound(quick, "wasmtime_engine_increment_epoch", [ctypes.c_void_p])
STACK = 1024 * 1024
FIBER_STACK = 3 * STACK  # the guest's own stack, and room for the host functions that it calls
_REVISION = 3  # of the settings below; a new revision compiles cached components again


def settings() -> wasmtime.Config:
    """Return the settings of every engine here. Features with unlimited memory or nondeterminism are off."""
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
    ffi.wasmtime_config_native_unwind_info_set(config.ptr(), False)  # for debuggers; slows each load
    return config


def module_settings() -> wasmtime.Config:
    """Return the settings for core modules whose memories the host makes: their initial data is copied."""
    config = settings()
    ffi.wasmtime_config_memory_init_cow_set(config.ptr(), False)
    return config


def engine() -> wasmtime.Engine:
    return wasmtime.Engine(settings())


class Native:
    """The engine of this process, and the pulse that drives its deadlines."""

    def __init__(self) -> None:
        self.engine = engine()
        self.pulse = Pulse(partial(_beat, ctypes.cast(self.engine.ptr(), ctypes.c_void_p).value))


@lru_cache(maxsize=1)
def native() -> Native:
    return Native()


def machine_code(code: bytes) -> wasm.Component:
    """Load machine code that our compiler made. The package's own function would copy the code once more."""
    made = ctypes.POINTER(ffi.wasmtime_component_t)()
    given = ctypes.cast(ctypes.c_char_p(code), ctypes.POINTER(ctypes.c_uint8))
    failed = ffi.wasmtime_component_deserialize(native().engine.ptr(), given, len(code), ctypes.byref(made))
    if failed:
        raise wasmtime.WasmtimeError._from_ptr(failed)
    return wasm.Component._from_ptr(made)


def compiled_key(component: bytes) -> str:
    """Return the cache key of a compiled component: a hash of its bytes and of the engine that compiles it."""
    return hashlib.sha256(f"{component_engine()}/{_REVISION}\0".encode() + component).hexdigest()
