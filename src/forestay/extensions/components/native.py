"""The engine that components run on: one for the process, with everything off that the world does not need."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import wasmtime
from wasmtime import _ffi as ffi

from forestay.extensions.compiler.artifact import component_engine
from forestay.extensions.engine.pulse import Pulse

STACK = 1024 * 1024
_REVISION = 1  # of the settings below: code compiled under others is compiled again


def engine() -> wasmtime.Engine:
    """A new engine. What would use memory that no limit covers, or differ from run to run, is off."""
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
    return wasmtime.Engine(config)


class Native:
    """The engine of this process, and the pulse of its deadlines."""

    def __init__(self) -> None:
        self.engine = engine()
        self.pulse = Pulse(self.engine.increment_epoch)


@lru_cache(maxsize=1)
def native() -> Native:
    return Native()


def compiled_key(component: bytes) -> str:
    """What a compiled form is kept under: the component's bytes, and the engine that compiled it."""
    return hashlib.sha256(f"{component_engine()}/{_REVISION}\0".encode() + component).hexdigest()
