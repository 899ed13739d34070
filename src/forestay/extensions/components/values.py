"""Passes values into and out of a component and defines its imports, through the engine's C functions.

The package's own functions cost six times as much. There are two handles on one library: `calls` releases the GIL,
`quick` keeps it and is for short functions.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime import component as wasm

_LIBRARY = str(ffi.filename)
calls, quick = ctypes.CDLL(_LIBRARY), ctypes.PyDLL(_LIBRARY)
Value = ffi.wasmtime_component_val_t
_STRING, _RESULT = ffi.WASMTIME_COMPONENT_STRING.value, ffi.WASMTIME_COMPONENT_RESULT.value
_LIST = ffi.WASMTIME_COMPONENT_LIST.value
_OF = Value.of.offset
_POINTER = struct.Struct("@P")
# The engine's layout of a value: its kind, padding to eight bytes, then its content.
_TEXT = struct.Struct("@B7xNP8x")  # kind, size, address
_TWO_TEXTS = struct.Struct("@B7xNP8xB7xNP8x")
_EITHER = struct.Struct("@B7x?7xP8x")  # kind, whether it is ok, address of what it holds
assert ctypes.sizeof(Value) == _TEXT.size == _EITHER.size, "the engine has another layout of values"


def bound(library: ctypes.CDLL, name: str, arguments: Sequence[Any], answer: Any = None) -> Any:
    function = getattr(library, name)
    function.argtypes, function.restype = arguments, answer
    return function


_new_text = bound(quick, "wasm_byte_vec_new", [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p])
_new_list = bound(quick, "wasmtime_component_vallist_new_uninit", [ctypes.c_void_p, ctypes.c_size_t])
_box = bound(quick, "wasmtime_component_val_new", [ctypes.c_void_p], ctypes.c_void_p)
delete = bound(quick, "wasmtime_component_val_delete", [ctypes.c_void_p])
new_error = bound(quick, "wasmtime_error_new", [ctypes.c_char_p], ctypes.c_void_p)
set_deadline = bound(quick, "wasmtime_context_set_epoch_deadline", [ctypes.c_void_p, ctypes.c_uint64])

Argument = bytes | list[bytes]
Answer = tuple[bool, bytes]
"""`result<string, string>`: whether it is ok, and its string in UTF-8."""


Serve = Callable[[bytes, bytes], Answer]
Refuse = Callable[[], str]


def add_serving(instance: wasm.LinkerInstance, name: str, serve: Serve, limit: int) -> Any:
    """Define a function from two strings to `result<string, string>`; `serve` must not raise.

    The caller keeps the returned object as long as the linker lives.
    """

    def callback(_data: Any, _context: Any, _type: Any, given: Any, _given: int, results: Any, _results: int) -> int:
        try:
            name, said = two_texts(ctypes.addressof(given.contents), limit)
        except ValueError as error:
            return int(new_error(str(error).encode()))
        give(ctypes.addressof(results.contents), serve(name, said))
        return 0

    return _add(instance, name, callback)


def two_texts(address: int, limit: int) -> tuple[bytes, bytes]:
    """Read the two strings of a host call; raise ValueError when one of them is larger than `limit`."""
    _, size, data, _, more, others = _TWO_TEXTS.unpack(ctypes.string_at(address, _TWO_TEXTS.size))
    if size > limit or more > limit:
        raise ValueError(f"a host call has {max(size, more)} bytes; the limit is {limit}")
    return ctypes.string_at(data, size), ctypes.string_at(others, more)


def give(address: int, answer: Answer) -> None:
    """Write `result<string, string>` where the engine reads it."""
    ok, said = answer
    value = Value()
    value.kind, at = _STRING, ctypes.addressof(value)
    _new_text(at + _OF, len(said), said)
    ctypes.memmove(address, _EITHER.pack(_RESULT, ok, _box(at)), _EITHER.size)


def taken(result: Any, limit: int) -> Answer:
    """Read `result<string, string>`; raise ValueError when its string is larger than `limit`."""
    _, ok, held = _EITHER.unpack_from(result)
    _, size, data = _TEXT.unpack(ctypes.string_at(held, _TEXT.size))
    if size > limit:
        raise ValueError(f"the answer has {size} bytes; the limit is {limit}")
    return ok, ctypes.string_at(data, size)


def lend(values: Any, texts: Sequence[bytes]) -> Any:
    """Write texts as values for the engine to copy; return their memory, which the caller keeps until the call ends.

    The engine owns none of it, so nothing must be deleted.
    """
    kept = ctypes.c_char_p(b"".join(texts))
    address = _POINTER.unpack_from(kept)[0]
    at = 0
    for said in texts:
        size = len(said)
        _TEXT.pack_into(values, at, _STRING, size, address)
        address += size
        at += _TEXT.size
    return kept


def add_refusal(instance: wasm.LinkerInstance, name: str, refuse: Refuse) -> Any:
    """Define a function that ends the guest, as `add_serving` does; `refuse` returns the reason and must not raise."""

    def callback(_data: Any, _context: Any, _type: Any, _values: Any, _given: int, _results: Any, _wanted: int) -> int:
        return int(new_error(refuse().encode()))

    return _add(instance, name, callback)


def add_answer(instance: wasm.LinkerInstance, name: str, answer: Callable[..., Any]) -> Any:
    """Define a function of any type, `answer(*arguments)`, as `add_serving` does; an exception ends the guest.

    A handle arrives as the number that it stands for.
    """

    def callback(_data: Any, context: Any, kind: Any, given: Any, count: int, results: Any, _wanted: int) -> int:
        store = wasmtime.StoreContext(context)
        try:
            with wasm.FuncType._from_ptr(kind, owner=store) as function:
                with _converting:
                    arguments = [kind.convert_from_c(given[at]) for at, (_, kind) in enumerate(function.params)]
                value = answer(*(_plain(store, argument) for argument in arguments))
                if function.result is not None:
                    with _converting:
                        function.result.convert_to_c(store, value, results)
        except Exception as error:  # noqa: BLE001 - nothing may be raised into the VM
            return int(new_error(f"{name}: {error}".encode("utf-8", "replace")))
        finally:
            store._invalidate()
        return 0

    return _add(instance, name, callback)


_converting = threading.Lock()  # the package looks up a variant's case through one set for the whole process


def _plain(store: wasmtime.StoreContext, argument: Any) -> Any:
    """Replace handles by what they stand for, so that a borrowed handle is returned before the call ends."""
    if isinstance(argument, list):
        return [_plain(store, item) for item in argument]
    return argument.to_host(store).rep if isinstance(argument, wasm.ResourceAny) else argument


def _add(instance: wasm.LinkerInstance, name: str, function: Callable[..., int]) -> Any:
    callback, text = ffi.wasmtime_component_func_callback_t(function), name.encode()
    error = ffi.wasmtime_component_linker_instance_add_func(
        instance.ptr(),
        ctypes.create_string_buffer(text),
        len(text),
        callback,
        None,
        ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )
    if error:
        raise wasmtime.WasmtimeError._from_ptr(error)
    return callback


def put(value: Any, argument: Argument) -> None:
    address = ctypes.addressof(value) + _OF
    if isinstance(argument, bytes):
        value.kind = _STRING
        _new_text(address, len(argument), argument)
        return
    value.kind = _LIST
    _new_list(address, len(argument))
    for index, item in enumerate(argument):
        put(value.of.list.data[index], item)
