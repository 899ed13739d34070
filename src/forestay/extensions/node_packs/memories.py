"""The memories of node packs: they grow up to a cap, and the host knows when it refused a growth.

With wasmtime's own limit, `memory.grow` returns -1, and nothing tells that lack of memory caused the later trap. So
the host makes these memories itself. A module runs on one thread; a refusal is noted for that thread.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from itertools import count
from typing import Any

import wasmtime
from wasmtime import _bindings as bindings

_FAILED = ctypes.c_void_p(-1).value
_RESERVED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_USABLE = mmap.PROT_READ | mmap.PROT_WRITE
_finalizer_t = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_here = threading.local()


def begin(cap: int) -> None:
    """Set the cap for each memory of the next call on this thread, in bytes."""
    _here.cap, _here.refused = cap, None


def refused() -> int | None:
    """Return the size that was refused since `begin`, if any."""
    found: int | None = getattr(_here, "refused", None)
    return found


class _Memory:
    """One linear memory: all its addresses are reserved, and usable up to its current size."""

    def __init__(self, size: int, reserved: int, guard: int) -> None:
        self.size = size
        self.reserved = reserved
        self.mapped = reserved + guard
        self.base = _libc().mmap(None, self.mapped, 0, _RESERVED, -1, 0)
        if self.base == _FAILED:
            raise MemoryError
        self._open(size)

    def _open(self, size: int) -> None:
        if size and _libc().mprotect(ctypes.c_void_p(self.base), size, _USABLE):
            raise MemoryError

    def grow(self, size: int) -> None:
        self._open(size)
        self.size = size

    def close(self) -> None:
        _libc().munmap(ctypes.c_void_p(self.base), self.mapped)


class Memories:
    """Makes the memories of one engine. Keep it as long as the engine: it owns the callbacks."""

    def __init__(self, config: wasmtime.Config) -> None:
        self._made: dict[int, _Memory] = {}
        self._numbers = count(1)
        self._get = bindings.wasmtime_memory_get_callback_t(self._got)
        self._grow = bindings.wasmtime_memory_grow_callback_t(self._grown)
        self._done = _finalizer_t(self._closed)
        self._new = bindings.wasmtime_new_memory_callback_t(self._created)
        self._end = _finalizer_t(lambda _env: None)
        creator = bindings.wasmtime_memory_creator(None, self._new, self._end)
        bindings.wasmtime_config_host_memory_creator_set(config.ptr(), ctypes.byref(creator))

    def _created(self, _env: Any, _kind: Any, least: int, most: int, reserved: int, guard: int, into: Any) -> int:
        room = max(reserved, min(most, _here.cap), least)
        if least > _here.cap:
            return self._refuse(least)
        try:
            memory = _Memory(least, room, guard)
        except MemoryError:
            return _error("There is no room for the memory.")
        number = next(self._numbers)
        self._made[number] = memory
        made = into.contents
        made.env, made.get_memory, made.grow_memory, made.finalizer = number, self._get, self._grow, self._done
        return 0

    def _got(self, number: int, size: Any, capacity: Any) -> int:
        memory = self._made[number]
        size[0], capacity[0] = memory.size, memory.reserved
        return int(memory.base)

    def _grown(self, number: int, size: int) -> int:
        memory = self._made[number]
        if size > min(_here.cap, memory.reserved):
            return self._refuse(size)
        try:
            memory.grow(size)
        except MemoryError:
            return _error("There is no room for the memory.")
        return 0

    def _refuse(self, size: int) -> int:
        _here.refused = size
        return _error("The memory would exceed its cap.")

    def _closed(self, number: int) -> None:
        self._made.pop(number).close()


def _error(words: str) -> int:
    made = bindings.wasmtime_error_new(words.encode())
    return int(ctypes.cast(made, ctypes.c_void_p).value or 0)


def _libc() -> ctypes.CDLL:
    found = ctypes.CDLL(None, use_errno=True)
    found.mmap.restype = ctypes.c_void_p
    found.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    found.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    found.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return found
