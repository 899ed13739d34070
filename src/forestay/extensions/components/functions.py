"""Work of the engine for one instance: the call of an export, and the making of the instance.

Work is begun, resumed until it has ended, and its answer taken. Here it ends with its first `resume`; work on a fiber
(`fibers.py`) may come back earlier, and goes on where it stopped.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime import component as wasm

from forestay.extensions.components.values import Answer, Argument, Value, bound, calls, delete, lend, put, taken

_call = bound(
    calls,
    "wasmtime_component_func_call",
    [ctypes.c_void_p] * 3 + [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t],
    ctypes.c_void_p,
)


class Work(Protocol):
    """Something that the engine does."""

    def resume(self) -> bool:
        """Go on; True when it has ended."""

    def answer(self) -> Answer:
        """What came of it. What the guest did wrong is a WasmtimeError, an answer beyond the limit a ValueError."""

    def drop(self) -> None:
        """Give up what has not ended."""


class Function:
    """An export that takes texts, or lists of them, and gives `result<string, string>`, or nothing."""

    def __init__(self, function: wasm.Func, store: wasmtime.Store, kind: str, limit: int) -> None:
        """`kind` is its signature, as `outside.EXPORTS` has it."""
        takes, _, gives = kind.partition("->")
        count, answers = takes.count("string"), bool(gives)
        self._raw = function._func
        self._values = (Value * max(count, 1))()
        self._lists = "list<" in takes
        self._lent: Any = None  # what the arguments point into
        self._owned: list[int] = []  # the addresses of arguments that the library made
        self._result = Value()
        self._at = ctypes.addressof(self._result)
        self._answers = answers
        self._limit = limit
        self._error: int | None = None
        self._call = (
            ctypes.addressof(self._raw),
            ctypes.cast(store._context(), ctypes.c_void_p).value,
            ctypes.addressof(self._values),
            count,
            self._at,
            int(answers),
        )

    def begin(self, arguments: Sequence[Argument]) -> None:
        if self._are_texts(arguments):
            self._lent = lend(self._values, arguments)
            return
        for value, argument in zip(self._values, arguments, strict=True):
            put(value, argument)
            self._owned.append(ctypes.addressof(value))

    def _are_texts(self, arguments: Sequence[Argument]) -> TypeGuard[Sequence[bytes]]:
        return not self._lists  # its signature tells

    def resume(self) -> bool:
        self._error = _call(*self._call)
        return True

    def answer(self) -> Answer:
        self._forget()
        error, self._error = self._error, None
        if error:
            raise as_error(error)
        if not self._answers:
            return True, b""
        try:
            return taken(self._result, self._limit)
        finally:
            delete(self._at)
            self._result.kind = 0  # the library drops what stands here before it writes the next answer

    def drop(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._lent = None
        while self._owned:
            delete(self._owned.pop())


class Instantiation:
    """An instance in the making; `instance` is there when it has ended well."""

    def __init__(self, linker: wasm.Linker, store: wasmtime.Store, code: wasm.Component) -> None:
        self.instance: wasm.Instance | None = None
        self._linker, self._store, self._code = linker, store, code

    def resume(self) -> bool:
        self.instance = self._linker.instantiate(self._store, self._code)
        return True

    def answer(self) -> Answer:
        return True, b""

    def drop(self) -> None:
        """It ends with its first `resume`."""


def as_error(address: Any) -> wasmtime.WasmtimeError:
    """The engine's error at this address, which is now ours."""
    return wasmtime.WasmtimeError._from_ptr(ctypes.cast(address, ctypes.POINTER(ffi.wasmtime_error_t)))
