"""Folders and files for data: makes private folders, writes whole files, and reports why a folder is unusable."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forestay.kernel.problems import Problem

_KEYS = {
    errno.ENOSPC: "ledger_full",
    errno.EDQUOT: "ledger_full",
    errno.EIO: "ledger_io",
    errno.EROFS: "ledger_read_only",
    errno.EACCES: "ledger_read_only",
    errno.EPERM: "ledger_read_only",
}


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Turn an OSError of the block into a Problem about the disk, the permissions or the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or "unknown"
        key = _KEYS.get(error.errno or 0, "config_invalid")
        message = f"The folder for data cannot be used: {reason}."
        raise Problem(key, message, at=str(folder), fix="Name another folder, or repair this one.") from error


def make_folder(folder: Path) -> None:
    with kept_in(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def write_file(path: Path, data: bytes | bytearray) -> None:
    """Write a file atomically: a reader sees all of the new content or all of the old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    work = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    work.write_bytes(data)
    work.replace(path)
