"""Runs engine work on a fiber, a stack of its own, so that any thread can suspend and resume it.

Work suspends when it makes a host call, and at the next epoch tick. So a call can begin on the event loop's thread and
continue on another thread when it turns out to be long.

F1  Suspended work has no Python code on its fiber. Any thread may resume it, one at a time.
F2  Python code that a guest calls from a fiber is short: it takes a request, gives an answer, answers a WASI function,
    or performs a quick host call (`HostCalls.is_quick`). It never blocks.
F3  Python 3.14 mistakes a fiber's stack for a stack overflow. There, work ends on the thread where it begins.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime import component as wasm

from forestay.extensions.components.functions import Function, Instantiation, as_error
from forestay.extensions.components.values import (
    Answer,
    Argument,
    bound,
    calls,
    give,
    new_error,
    quick,
    two_texts,
)

SUPPORTED = sys.version_info < (3, 14)  # F3
_begin_call = bound(
    quick,
    "wasmtime_component_func_call_async",
    [ctypes.c_void_p] * 3 + [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
    ctypes.c_void_p,
)
_begin_instance = bound(quick, "wasmtime_component_linker_instantiate_async", [ctypes.c_void_p] * 5, ctypes.c_void_p)
_poll = bound(calls, "wasmtime_call_future_poll", [ctypes.c_void_p], ctypes.c_bool)
_give_up = bound(calls, "wasmtime_call_future_delete", [ctypes.c_void_p])  # this unwinds a guest that has not ended
_give_back = bound(quick, "wasmtime_call_future_delete", [ctypes.c_void_p])
_yield = bound(quick, "wasmtime_context_epoch_deadline_async_yield_and_update", [ctypes.c_void_p, ctypes.c_uint64])
# The package's declarations, with numbers for addresses: making a pointer object costs more than its use here.
_Called = ctypes.CFUNCTYPE(
    None, *[ctypes.c_void_p] * 4, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_void_p] * 2
)
_CONTINUATION = struct.Struct("@PPP")  # the callback, its data, the finalizer of the data
_POINTER = struct.Struct("@P")


def come_back(context: int | None) -> None:
    """Make the work of a store suspend at each tick."""
    _yield(context, 1)


class FiberFunction(Function):
    """An export that is called on a fiber."""

    def __init__(self, function: wasm.Func, store: wasmtime.Store, kind: str, limit: int) -> None:
        super().__init__(function, store, kind, limit)
        self._failed = ctypes.c_void_p()
        self._start = (*self._call, ctypes.addressof(self._failed))
        self._future = 0

    def begin(self, arguments: Sequence[Argument]) -> None:
        super().begin(arguments)
        self._future = _begin_call(*self._start)

    def resume(self) -> bool:
        if not _poll(self._future):
            return False
        _give_back(self._future)
        self._future = 0
        failed = self._failed.value
        if failed:
            self._error, self._failed.value = failed, None
        return True

    def drop(self) -> None:
        if self._future:
            _give_up(self._future)
            self._future = 0
        super().drop()


class FiberInstantiation(Instantiation):
    """Instantiates on a fiber, because modules may have start functions."""

    def __init__(self, linker: wasm.Linker, store: wasmtime.Store, code: wasm.Component) -> None:
        super().__init__(linker, store, code)
        self._made = ffi.wasmtime_component_instance_t()
        self._failed = ctypes.c_void_p()
        self._future = _begin_instance(
            ctypes.cast(linker.ptr(), ctypes.c_void_p),
            ctypes.cast(store._context(), ctypes.c_void_p),
            ctypes.cast(code.ptr(), ctypes.c_void_p),
            ctypes.addressof(self._made),
            ctypes.addressof(self._failed),
        )

    def resume(self) -> bool:
        if not _poll(self._future):
            return False
        self.drop()
        return True

    def answer(self) -> Answer:
        if self._failed.value:
            raise as_error(self._failed.value)
        self.instance = wasm.Instance._from_raw(self._made)
        return True, b""

    def drop(self) -> None:
        if self._future:
            _give_up(self._future)
            self._future = 0


class Request:
    """A host call for which a fiber waits, and its answer when it is there."""

    __slots__ = ("answer", "given", "name", "results")

    def __init__(self, name: bytes, given: bytes, results: int) -> None:
        self.name = name
        self.given = given
        self.results = results
        self.answer: Answer | None = None


class Asking(Protocol):
    """A running instance, which makes host calls."""

    asked: Request | None

    def look(self, name: bytes, given: bytes) -> Answer | None:
        """Return the answer of a quick host call, else None; must not raise."""


def add_asking(instance: wasm.LinkerInstance, name: str, who: Callable[[], Asking], limit: int) -> Any:
    """Define a function from two strings to `result<string, string>`; `who` returns the instance that calls it.

    A host call that `look` does not answer stays in `asked` of the instance. The fiber waits until it is resumed with
    an answer.
    """

    def answered(_data: Any) -> bool:
        asking = who()
        request = asking.asked
        if request is None:
            return True  # `look` answered it, or it was too large
        if request.answer is None:
            return False
        give(request.results, request.answer)
        asking.asked = None
        return True

    answer = ffi.wasmtime_func_async_continuation_callback_t(answered)
    nothing = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))

    then_answered = _CONTINUATION.pack(ctypes.cast(answer, ctypes.c_void_p).value, 0, 0)

    def call(
        _data: int, _store: int, _type: int, given: int, _given: int, results: int, _results: int, error: int, then: int
    ) -> None:
        ctypes.memmove(then, then_answered, _CONTINUATION.size)
        try:
            name, said = two_texts(given, limit)
        except ValueError as refused:
            ctypes.memmove(error, _POINTER.pack(new_error(str(refused).encode())), _POINTER.size)
            return
        asking = who()
        found = asking.look(name, said)
        if found is None:
            asking.asked = Request(name, said, results)
        else:
            give(results, found)

    callback, encoded = _Called(call), name.encode()
    failed = ffi.wasmtime_component_linker_instance_add_func_async(
        instance.ptr(),
        ctypes.create_string_buffer(encoded),
        len(encoded),
        ctypes.cast(callback, ffi.wasmtime_component_func_async_callback_t),
        None,
        nothing,
    )
    if failed:
        raise wasmtime.WasmtimeError._from_ptr(failed)
    return callback, answer
