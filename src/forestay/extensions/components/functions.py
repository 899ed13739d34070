"""The engine's work for one instance: calling an export, and instantiating.

Work begins, is resumed until it ends, and gives its answer. Here the first `resume` ends it; work on a fiber
(`fibers.py`) can suspend and continue where it stopped.
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
    """A task of the engine."""

    def resume(self) -> bool:
        """Continue; return True when it has ended."""

    def answer(self) -> Answer:
        """Return the result. A guest's fault raises WasmtimeError, an answer beyond the limit ValueError."""

    def drop(self) -> None:
        """Give up work that has not ended."""


class Function:
    """An export that takes strings or lists of strings, and returns `result<string, string>` or nothing."""

    def __init__(self, function: wasm.Func, store: wasmtime.Store, kind: str, limit: int) -> None:
        """`kind` is its signature, as written in `outside.EXPORTS`."""
        takes, _, gives = kind.partition("->")
        count, answers = takes.count("string"), bool(gives)
        self._raw = function._func
        self._values = (Value * max(count, 1))()
        self._lists = "list<" in takes
        self._lent: Any = None  # the memory that the arguments point into
        self._owned: list[int] = []  # the addresses of arguments that the library allocated
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
        return not self._lists  # follows from its signature

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
            self._result.kind = 0  # else the library frees this value again before it writes the next answer

    def drop(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._lent = None
        while self._owned:
            delete(self._owned.pop())


class Instantiation:
    """Makes an instance; `instance` is set after success."""

    def __init__(self, linker: wasm.Linker, store: wasmtime.Store, code: wasm.Component) -> None:
        self.instance: wasm.Instance | None = None
        self._linker, self._store, self._code = linker, store, code

    def resume(self) -> bool:
        self.instance = self._linker.instantiate(self._store, self._code)
        return True

    def answer(self) -> Answer:
        return True, b""

    def drop(self) -> None:
        """Do nothing: the first `resume` has ended it."""


def as_error(address: Any) -> wasmtime.WasmtimeError:
    """Take ownership of the engine's error at this address."""
    return wasmtime.WasmtimeError._from_ptr(ctypes.cast(address, ctypes.POINTER(ffi.wasmtime_error_t)))
