"""Text across the border of a component, through the C functions: the package's own way costs six times as much.

Two handles on one library: `calls` lets other threads run meanwhile, `quick` does not and serves what is short.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime import component as wasm

_LIBRARY = str(ffi.filename)
_calls, _quick = ctypes.CDLL(_LIBRARY), ctypes.PyDLL(_LIBRARY)
_Value = ffi.wasmtime_component_val_t
_STRING, _RESULT = ffi.WASMTIME_COMPONENT_STRING.value, ffi.WASMTIME_COMPONENT_RESULT.value
_LIST = ffi.WASMTIME_COMPONENT_LIST.value
_OF = _Value.of.offset


def _bound(library: ctypes.CDLL, name: str, arguments: Sequence[Any], answer: Any = None) -> Any:
    function = getattr(library, name)
    function.argtypes, function.restype = arguments, answer
    return function


_call = _bound(
    _calls,
    "wasmtime_component_func_call",
    [ctypes.c_void_p] * 3 + [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t],
    ctypes.c_void_p,
)
_new_text = _bound(_quick, "wasm_byte_vec_new", [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p])
_new_list = _bound(_quick, "wasmtime_component_vallist_new_uninit", [ctypes.c_void_p, ctypes.c_size_t])
_box = _bound(_quick, "wasmtime_component_val_new", [ctypes.c_void_p], ctypes.c_void_p)
_delete = _bound(_quick, "wasmtime_component_val_delete", [ctypes.c_void_p])
_new_error = _bound(_quick, "wasmtime_error_new", [ctypes.c_char_p], ctypes.c_void_p)
set_deadline = _bound(_quick, "wasmtime_context_set_epoch_deadline", [ctypes.c_void_p, ctypes.c_uint64])

Argument = bytes | list[bytes]
Answer = tuple[bool, bytes]
"""`result<string, string>`: whether it is ok, and its text in UTF-8."""


class Function:
    """An export that takes texts, or lists of them, and gives `result<string, string>`, or nothing."""

    __slots__ = ("_address", "_arguments", "_context", "_count", "_limit", "_raw", "_result", "_results")

    def __init__(self, function: wasm.Func, store: wasmtime.Store, count: int, limit: int, answers: bool) -> None:
        self._raw = function._func
        self._address = ctypes.addressof(self._raw)
        self._context = ctypes.cast(store._context(), ctypes.c_void_p).value
        self._count = count
        self._limit = limit
        self._arguments = (_Value * max(count, 1))()
        self._result = _Value()
        self._results = 1 if answers else 0

    def __call__(self, *arguments: Argument) -> Answer:
        """Run it; what the guest does wrong is a WasmtimeError, an answer beyond the limit a ValueError."""
        values, result = self._arguments, self._result
        for value, argument in zip(values, arguments, strict=False):
            _put(value, argument)
        error = _call(
            self._address, self._context, ctypes.addressof(values), self._count, ctypes.addressof(result), self._results
        )
        for index in range(self._count):
            _delete(ctypes.addressof(values[index]))
        if error:
            raise wasmtime.WasmtimeError._from_ptr(ctypes.cast(error, ctypes.POINTER(ffi.wasmtime_error_t)))
        if not self._results:
            return True, b""
        try:
            answer = result.of.result
            size = answer.val.contents.of.string.size
            if size > self._limit:
                raise ValueError(f"the answer has {size} bytes; at most {self._limit} are read")
            return bool(answer.is_ok), _text(answer.val.contents)
        finally:
            _delete(ctypes.addressof(result))
            result.kind = 0  # the library drops what stands here before it writes the next answer


Serve = Callable[[bytes, bytes], Answer]
Refuse = Callable[[], str]


def add_serving(instance: wasm.LinkerInstance, name: str, serve: Serve, limit: int) -> Any:
    """Define a function of two texts that gives `result<string, string>`; `serve` must not raise.

    The caller keeps what is returned for as long as the linker lives.
    """

    def callback(_data: Any, _context: Any, _type: Any, given: Any, _given: int, results: Any, _results: int) -> int:
        sizes = given[0].of.string.size, given[1].of.string.size
        if max(sizes) > limit:
            return int(_new_error(b"a host call has %d bytes; at most %d are read" % (max(sizes), limit)))
        ok, text = serve(_text(given[0]), _text(given[1]))
        value = _Value()
        _put(value, text)
        result = results[0]
        result.kind = _RESULT
        result.of.result.is_ok = ok
        result.of.result.val = ctypes.cast(_box(ctypes.addressof(value)), ctypes.POINTER(_Value))
        return 0

    return _add(instance, name, callback)


def add_refusal(instance: wasm.LinkerInstance, name: str, refuse: Refuse) -> Any:
    """As `add_serving`, a function that ends the guest; `refuse` says why, and must not raise."""

    def callback(_data: Any, _context: Any, _type: Any, _values: Any, _given: int, _results: Any, _wanted: int) -> int:
        return int(_new_error(refuse().encode()))

    return _add(instance, name, callback)


def add_answer(instance: wasm.LinkerInstance, name: str, answer: Callable[..., Any]) -> Any:
    """As `add_serving`, a function of any type: `answer(*arguments)`; what it raises ends the guest.

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
            return int(_new_error(f"{name}: {error}".encode("utf-8", "replace")))
        finally:
            store._invalidate()
        return 0

    return _add(instance, name, callback)


_converting = threading.Lock()  # the package finds a variant's case by way of one set for the whole process


def _plain(store: wasmtime.StoreContext, argument: Any) -> Any:
    """An argument, and for a handle what it stands for: so a borrowed one is given back before the call ends."""
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


def _put(value: Any, argument: Argument) -> None:
    address = ctypes.addressof(value) + _OF
    if isinstance(argument, bytes):
        value.kind = _STRING
        _new_text(address, len(argument), argument)
        return
    value.kind = _LIST
    _new_list(address, len(argument))
    for index, item in enumerate(argument):
        _put(value.of.list.data[index], item)


def _text(value: Any) -> bytes:
    text = value.of.string
    return ctypes.string_at(text.data, text.size) if text.size else b""
