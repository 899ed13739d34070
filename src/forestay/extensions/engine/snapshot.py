"""A VM as data: its memory and three pointers. A restored VM continues where it was, with its pending promises."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import msgspec

from forestay.extensions.engine.kept_pages import keep
from forestay.extensions.engine.limits import Limits
from forestay.extensions.engine.mapping import image_bytes, map_image
from forestay.extensions.engine.native import native
from forestay.extensions.engine.vm import Host, Vm
from forestay.kernel import Problem

_MAGIC = b"forestay-vm-1\n"


class Snapshot(msgspec.Struct, frozen=True, weakref=True):
    """`roots` are handles of values that the owner needs again; they keep their addresses."""

    engine: str
    size: int
    blocks: list[tuple[int, bytes]]
    pointers: tuple[int, int, int]
    scratch: int
    undefined: int
    roots: dict[str, int]
    over: Snapshot | None = None
    """The base snapshot, if the blocks here are only the differences from it. Only within one process."""
    pages: Any = None
    """A `KeptPages` instead of blocks, if the snapshot shares memory with its VM. Only within one process."""

    def to_bytes(self) -> bytes:
        return _MAGIC + zlib.compress(msgspec.msgpack.encode(self), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """Read a snapshot that this project wrote; use it only for files that nobody else can write."""
        if not data.startswith(_MAGIC):
            raise Problem("state_corrupted", "This is not a snapshot of a VM.")
        try:
            return msgspec.msgpack.decode(zlib.decompress(data[len(_MAGIC) :]), type=Snapshot)
        except (zlib.error, msgspec.MsgspecError) as error:
            raise Problem("state_corrupted", "The snapshot is damaged.", reason=str(error)[:200]) from error


def take(vm: Vm, roots: dict[str, int], over: Snapshot | None = None, *, share: bool = False) -> Snapshot:
    """Take a snapshot of a stopped VM, or of its differences from `over`.

    With `share`, snapshot and VM share memory until the VM writes to it, where the system can do that.
    """
    with vm.running():  # its last slice has ended
        pointers = vm.pointers()
    below = None if over is None or over.over is not None else image_bytes(over)
    pages = keep(vm.memory, vm.memory.runs(below)) if share and below is not None else None
    if pages is not None:
        vm.pages = pages
    blocks = [] if pages is not None else vm.memory.blocks(below or b"")
    return Snapshot(
        native().digest,
        vm.memory.size,
        blocks,
        pointers,
        vm.scratch,
        vm.undefined,
        dict(roots),
        None if below is None else over,
        pages,
    )


def restore(snapshot: Snapshot, host: Host, limits: Limits) -> Vm:
    """Make a new VM from a snapshot."""
    if snapshot.engine != native().digest:
        raise Problem(
            "state_corrupted",
            "Another engine made the snapshot.",
            expected=native().digest[:12],
            observed=snapshot.engine[:12],
            fix="Load the extension again.",
        )
    vm = Vm(host, limits)
    try:
        vm.memory.grow(snapshot.size)
    except MemoryError as error:
        vm.close()
        raise Problem(
            "extension_memory", "The snapshot needs more memory than this VM may have.", limit_mb=limits.memory_mb
        ) from error
    _lay(snapshot.over or snapshot, vm)
    if snapshot.over is not None:
        for address, data in snapshot.blocks:
            vm.memory.write(address, data)
    if snapshot.pages is not None:
        vm.pages = snapshot.pages
        snapshot.pages.lay(vm.memory)
    vm.set_pointers(*snapshot.pointers)
    vm.scratch, vm.undefined = snapshot.scratch, snapshot.undefined
    vm.apply_limits()
    return vm


def _lay(snapshot: Snapshot, vm: Vm) -> None:
    """Fill the VM's memory from a snapshot without a base."""
    if not map_image(snapshot, vm.memory):
        for address, length in _initial():
            vm.memory.clear(address, length)
        for address, data in snapshot.blocks:
            vm.memory.write(address, data)


@lru_cache(maxsize=1)
def _initial() -> list[tuple[int, int]]:
    """Return where a new instance's memory is not zero: there, restoring a snapshot must also write zeros."""
    vm = Vm(Nobody(), Limits())
    try:
        return [(address, len(data)) for address, data in vm.memory.blocks()]
    finally:
        vm.close()


class Nobody:
    """A host for a VM that never calls it."""

    def clock_ns(self, monotonic: bool) -> int:
        return 0

    def random(self, count: int) -> bytes:
        return bytes(count)

    def timezone_offset(self, seconds: int) -> int:
        return 0

    def sync(self, request: bytes) -> bytes:
        raise Problem("internal", "The prelude makes no host calls.")
