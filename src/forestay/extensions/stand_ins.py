"""Puts empty stand-ins into missing protected places, while programs run that could create them.

A program's sandbox mounts over the stand-in. Removing the stand-in would remove the mount, so all its users share a
lock, and the last user removes it. Its modification time, the beginning of 1970, distinguishes it from a person's own
empty file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from forestay.extensions.protection import Kind

_TRIES = 100


@contextmanager
def standing_in(wanted: Sequence[tuple[str, Kind]]) -> Iterator[None]:
    held: list[tuple[str, int]] = []
    try:
        for path, kind in wanted:
            try:
                held.append((path, _taken(path, kind)))
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EROFS):
                    raise  # otherwise the host has no right to create it, and its programs have no more rights
        yield
    finally:
        for path, descriptor in reversed(held):
            _let_go(path, descriptor)


def _taken(path: str, kind: Kind) -> int:
    """Return a descriptor of the stand-in, or of what is there, with a share of its lock."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileExistsError):
            _make(path, kind)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            continue  # its last user has just removed it
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if _is_still(path, descriptor):
            return descriptor
        os.close(descriptor)
    raise OSError(errno.EBUSY, f"{path} could not be locked")


def _make(path: str, kind: Kind) -> None:
    if kind == "folder":
        os.mkdir(path)  # noqa: PTH102 - as everywhere here, paths are text
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    os.utime(path, (0, 0))


def _let_go(path: str, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        facts = os.fstat(descriptor)
        if facts.st_mtime_ns == 0 and _is_still(path, descriptor):
            if stat.S_ISDIR(facts.st_mode):
                os.rmdir(path)  # noqa: PTH106 - only while it is empty
            elif facts.st_size == 0:
                os.unlink(path)  # noqa: PTH108
    except OSError:
        pass  # others still use it, or it is no longer empty
    finally:
        os.close(descriptor)


def _is_still(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))  # noqa: PTH116
    except OSError:
        return False
