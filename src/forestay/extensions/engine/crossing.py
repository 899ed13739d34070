"""Runs a whole tick with one crossing between Python and WebAssembly.

A tick delivers a message to the guest, runs its microtasks and collects its output. From Python that takes a dozen
calls of the engine, and most of them cost more for the crossing than for their work. This small WebAssembly program is
in the engine's store and makes those calls itself, so that Python crosses once.

C1  It makes the same calls as `Vm`, in the same order, so the engine's memory is the same afterwards.
C2  It returns after `MAX_JOBS` microtasks, so that the host can check its clock.
C3  It decides nothing: Python handles exceptions and texts that are too long for the buffer.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import wasmtime
from wasmtime import _ffi as ffi

MAX_JOBS = 64
BUFFER = 64 * 1024
WORDS = 32  # bytes before the buffer: an argument list and the results of `tick` and `settle`
AT_JOBS, AT_LENGTH, AT_VALUE, AT_TEXT = 1, 2, 3, 4  # word numbers of the results

SAID: Final = 0  # the text is in the buffer
THREW: Final = 1  # the function that got the message threw; the value is the engine's exception mark, or 0
MORE: Final = 2  # microtasks may be left
LONG: Final = 3  # the text does not fit into the buffer, or (address 0) was not made; the caller frees both
BROKEN: Final = 4  # the function that returns the text threw

UNREAD: Final = 0xFFFFFFFF  # `read`: the text does not fit into the buffer, or was not made

NEEDED = (
    "memory", "qjs_new_string", "qjs_call", "qjs_free_value", "qjs_execute_pending_job", "qjs_get_exception",
    "qjs_get_string_len", "qjs_free_cstring",
)  # fmt: skip
"""Exports of the engine, in the order in which the program imports them."""

PROGRAM = f"""(module
  (import "engine" "memory" (memory 0))
  (import "engine" "qjs_new_string" (func $new_string (param i32 i32) (result i32)))
  (import "engine" "qjs_call" (func $call (param i32 i32 i32 i32) (result i32)))
  (import "engine" "qjs_free_value" (func $free (param i32)))
  (import "engine" "qjs_execute_pending_job" (func $job (result i32)))
  (import "engine" "qjs_get_exception" (func $exception (result i32)))
  (import "engine" "qjs_get_string_len" (func $text (param i32 i32) (result i32)))
  (import "engine" "qjs_free_cstring" (func $free_text (param i32)))

  (func $threw (param $value i32) (result i32)
    (if (result i32) (local.get $value)
      (then (i32.eq (i32.load offset=4 (local.get $value)) (i32.const 6)))
      (else (i32.const 1))))

  (func $settle (export "settle") (param $collect i32) (param $nothing i32) (param $scratch i32) (result i32)
    (local $jobs i32) (local $ran i32) (local $value i32) (local $at i32) (local $length i32)
    (loop $again
      (block $idle
        (loop $next
          (br_if $idle (i32.eqz (local.tee $ran (call $job))))
          (if (i32.ne (local.get $ran) (i32.const 1)) (then (call $free (call $exception))))
          (local.set $jobs (i32.add (local.get $jobs) (i32.const 1)))
          (br_if $next (i32.lt_u (local.get $jobs) (i32.const {MAX_JOBS}))))
        (i32.store offset={4 * AT_JOBS} (local.get $scratch) (local.get $jobs))
        (return (i32.const {MORE})))
      (local.set $value (call $call (local.get $collect) (local.get $nothing) (i32.const 0) (local.get $scratch)))
      (i32.store offset={4 * AT_JOBS} (local.get $scratch) (local.get $jobs))
      (i32.store offset={4 * AT_VALUE} (local.get $scratch) (local.get $value))
      (if (call $threw (local.get $value)) (then (return (i32.const {BROKEN}))))
      (local.set $at (call $text (local.get $value) (local.get $scratch)))
      (local.set $length (i32.load (local.get $scratch)))
      (i32.store offset={4 * AT_LENGTH} (local.get $scratch) (local.get $length))
      (i32.store offset={4 * AT_TEXT} (local.get $scratch) (local.get $at))
      (if (i32.eqz (local.get $at)) (then (return (i32.const {LONG}))))
      (if (i32.gt_u (local.get $length) (i32.const {BUFFER})) (then (return (i32.const {LONG}))))
      (memory.copy (i32.add (local.get $scratch) (i32.const {WORDS})) (local.get $at) (local.get $length))
      (call $free_text (local.get $at))
      (call $free (local.get $value))
      (if (local.get $length) (then (return (i32.const {SAID}))))
      (br $again))
    (unreachable))

  (func (export "read") (param $value i32) (param $scratch i32) (result i32)
    (local $at i32) (local $length i32)
    (local.set $at (call $text (local.get $value) (local.get $scratch)))
    (local.set $length (i32.load (local.get $scratch)))
    (if (i32.eqz (local.get $at)) (then (return (i32.const -1))))
    (if (i32.gt_u (local.get $length) (i32.const {BUFFER})) (then
      (call $free_text (local.get $at))
      (return (i32.const -1))))
    (memory.copy (i32.add (local.get $scratch) (i32.const {WORDS})) (local.get $at) (local.get $length))
    (call $free_text (local.get $at))
    (local.get $length))

  (func (export "tick")
    (param $deliver i32) (param $collect i32) (param $nothing i32) (param $scratch i32) (param $length i32)
    (result i32)
    (local $message i32) (local $value i32)
    (local.set $message (call $new_string (i32.add (local.get $scratch) (i32.const {WORDS})) (local.get $length)))
    (i32.store (local.get $scratch) (local.get $message))
    (local.set $value (call $call (local.get $deliver) (local.get $nothing) (i32.const 1) (local.get $scratch)))
    (call $free (local.get $message))
    (if (call $threw (local.get $value)) (then
      (i32.store offset={4 * AT_VALUE} (local.get $scratch) (local.get $value))
      (return (i32.const {THREW}))))
    (call $free (local.get $value))
    (call $settle (local.get $collect) (local.get $nothing) (local.get $scratch))))"""


def beside(context: Any, module: wasmtime.Module, needed: list[Any]) -> tuple[Any, Any, Any]:
    """Instantiate the program for an engine whose exports are `needed`; return its `tick`, `settle` and `read`."""
    instance, trap = ffi.wasmtime_instance_t(), ctypes.POINTER(ffi.wasm_trap_t)()
    imports = (ffi.wasmtime_extern_t * len(needed))(*needed)
    error = ffi.wasmtime_instance_new(
        context, module.ptr(), imports, len(needed), ctypes.byref(instance), ctypes.byref(trap)
    )
    if error:
        raise wasmtime.WasmtimeError._from_ptr(error)
    assert not trap, "it has no start function"
    tick, settle, read = (export(context, instance, name) for name in ("tick", "settle", "read"))
    return tick, settle, read


def export(context: Any, instance: Any, name: str) -> Any:
    """Return an export of an instance as the C library's handle; None when it does not exist."""
    item, text = ffi.wasmtime_extern_t(), name.encode()
    found = ffi.wasmtime_instance_export_get(
        context, ctypes.byref(instance), ctypes.create_string_buffer(text), len(text), ctypes.byref(item)
    )
    return item if found else None
