"""A VM's linear memory: bounds-checked reads and writes, and its pages for a snapshot."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from wasmtime import _ffi as ffi

PAGE = 65536  # what WebAssembly grows by
BLOCK = 4096  # what a snapshot keeps or leaves out
_ZEROS = bytes(BLOCK)


class Memory:
    """Addresses are the guest's; whatever it says, nothing outside its own memory is touched."""

    def __init__(self, context: Any, memory: Any) -> None:
        self._context = context
        self._memory = memory
        self.refresh()

    def refresh(self) -> None:
        """Look at the memory again: it may have grown."""
        self.size: int = ffi.wasmtime_memory_data_size(self._context, ctypes.byref(self._memory))
        pointer = ffi.wasmtime_memory_data(self._context, ctypes.byref(self._memory))
        self.base: int = ctypes.cast(pointer, ctypes.c_void_p).value or 0
        self._bytes = memoryview((ctypes.c_ubyte * self.size).from_address(self.base)).cast("B")
        self._words = self._bytes.cast("I")

    def release(self) -> None:
        """The instance is gone: nothing can be read or written any more."""
        self.size = 0
        self._bytes = self._words = memoryview(b"")

    def grow(self, size: int) -> None:
        """Make room for `size` bytes; the store's limit may say no, which is a Python error here."""
        if size > self.size:
            before = ctypes.c_uint64(0)
            pages = -(-(size - self.size) // PAGE)
            error = ffi.wasmtime_memory_grow(self._context, ctypes.byref(self._memory), pages, ctypes.byref(before))
            if error:
                ffi.wasmtime_error_delete(error)
                raise MemoryError(f"{size} bytes are more than this VM may have")
            self.refresh()

    def read(self, address: int, length: int) -> bytes:
        if address + length > self.size:
            self._check(address, length)
        return bytes(self._bytes[address : address + length])

    def write(self, address: int, data: bytes) -> None:
        if address + len(data) > self.size:
            self._check(address, len(data))
        self._bytes[address : address + len(data)] = data

    def read_u32(self, address: int) -> int:
        """A word at an aligned address."""
        if address + 4 > self.size:
            self._check(address, 4)
        return self._words[address >> 2]

    def write_u32(self, address: int, value: int) -> None:
        if address + 4 > self.size:
            self._check(address, 4)
        self._words[address >> 2] = value

    def write_u64(self, address: int, value: int) -> None:
        self.write(address, value.to_bytes(8, "little"))

    def runs(self, below: bytes | mmap.mmap = b"") -> list[tuple[int, int]]:
        """Where blocks are not what `below` has there, or zero where it has nothing, as (start, end)."""
        self.refresh()
        image, other = self._bytes, memoryview(below)
        runs: list[tuple[int, int]] = []
        start = -1
        for at in range(0, self.size, BLOCK):
            same = image[at : at + BLOCK] == (other[at : at + BLOCK] if at < len(other) else _ZEROS)
            if same and start >= 0:
                runs.append((start, at))
                start = -1
            elif not same and start < 0:
                start = at
        if start >= 0:
            runs.append((start, self.size))
        other.release()
        return runs

    def blocks(self, below: bytes | mmap.mmap = b"") -> list[tuple[int, bytes]]:
        """The blocks of `runs`, as (address, bytes)."""
        return [(start, bytes(self._bytes[start:end])) for start, end in self.runs(below)]

    def view(self, start: int, end: int) -> memoryview:
        """What stands there, without a copy; valid as long as the VM does not run."""
        if end > self.size:
            self._check(start, end - start)
        return self._bytes[start:end]

    def clear(self, address: int, length: int) -> None:
        self.write(address, bytes(length))

    def _check(self, address: int, length: int) -> None:
        if self.size:
            self.refresh()
        if address + length > self.size:
            raise IndexError(f"{length} bytes at {address} lie outside the VM's memory")
