"""Maps a snapshot as memory that VMs share until they write to it.

Copying an image of several megabytes takes milliseconds, and uses that memory again for each VM. On Linux, the image
is in an anonymous file instead, and is mapped privately over a new instance's linear memory: the system copies a page
when its VM first writes to it. wasmtime reserved that range for the instance and frees it as a whole.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import weakref
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forestay.extensions.engine.memory import Memory
    from forestay.extensions.engine.snapshot import Snapshot

_MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value
_files: dict[int, int] = {}
_making = threading.Lock()


def available() -> bool:
    return sys.platform == "linux" and hasattr(os, "memfd_create")


def map_image(snapshot: Snapshot, memory: Memory) -> bool:
    """Map the image over `memory` without a copy; return False where that is not possible."""
    if not available() or memory.base % mmap.PAGESIZE or snapshot.size % mmap.PAGESIZE or memory.size < snapshot.size:
        return False
    return map_file(_file(snapshot), 0, memory.base, snapshot.size)


def map_file(file: int, offset: int, address: int, length: int) -> bool:
    """Map a part of a file privately at an address that this process has reserved; return False on failure."""
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
    return bool(_libc().mmap(address, length, protection, flags, file, offset) != _FAILED)


def image_bytes(snapshot: Snapshot) -> mmap.mmap | None:
    """Return the image's memory for reading, without a copy; None where that is not possible."""
    if not available() or not snapshot.size:
        return None
    return mmap.mmap(_file(snapshot), snapshot.size, mmap.MAP_SHARED, mmap.PROT_READ)


def _file(snapshot: Snapshot) -> int:
    """Return the anonymous file of an image; it lives as long as the image."""
    key = id(snapshot)
    with _making:
        file = _files.get(key)
        if file is None:
            file = os.memfd_create("forestay-image", os.MFD_CLOEXEC)
            os.ftruncate(file, snapshot.size)
            for address, data in snapshot.blocks:
                os.pwrite(file, data, address)
            _files[key] = file
            weakref.finalize(snapshot, _close, key)
        return file


def _close(key: int) -> None:
    file = _files.pop(key, None)
    if file is not None:
        os.close(file)


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    return library
