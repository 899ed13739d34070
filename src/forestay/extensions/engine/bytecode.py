"""Caches the bytecode of artifacts by the hash of text and engine: bytecode loads several times faster than text.

The engine trusts bytecode, so it is always compiled here from text, and never taken from an artifact. The seal of the
host's data folder binds each cached file to its text. A file without a valid seal is reported and compiled again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from forestay.extensions.engine.limits import GuestError, Limits
from forestay.extensions.engine.native import native
from forestay.extensions.engine.snapshot import Nobody
from forestay.extensions.engine.vm import Vm
from forestay.kernel import Seal, write_file

MAX_KEPT = 256


class KeptBytecode:
    """A cache folder of bytecode under one seal."""

    def __init__(
        self, folder: Path, seal: Seal, refused: Callable[[str, str], None] = lambda _what, _name: None
    ) -> None:
        self.folder = folder / seal.id
        self._seal = seal
        self._refused = refused

    def find(self, key: str) -> bytes | None:
        try:
            whole = self._file(key).read_bytes()
        except OSError:
            return None
        data = self._seal.open(f"bytecode {key}", whole)
        if data is None:
            self._refused("bytecode", key)
        return data

    def keep(self, key: str, data: bytes) -> None:
        with suppress(OSError):  # if nothing can be cached, the next load compiles again
            write_file(self._file(key), self._seal.close(f"bytecode {key}", data))
            _forget_oldest(self.folder)

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.qbc"


def bytecode_key(text: str, name: str) -> str:
    return hashlib.sha256(f"{native().digest}\0{name}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()


def compile_module(text: str, name: str, cache: KeptBytecode | None = None) -> bytes:
    """Return the bytecode of an ES module; a syntax error raises GuestError."""
    key = bytecode_key(text, name)
    kept = cache.find(key) if cache is not None else None
    if kept is not None:
        return kept
    vm = Vm(Nobody(), Limits(slice_ms=60_000))
    try:
        vm.initialize()
        with vm.running():
            data = vm.compile(text, name)
    finally:
        vm.close()
    if cache is not None:
        cache.keep(key, data)
    return data


def _forget_oldest(folder: Path) -> None:
    """Keep the newest `MAX_KEPT` files; other processes may do the same at the same time."""
    kept = []
    for path in folder.glob("*.qbc"):
        try:
            kept.append((path.stat().st_mtime_ns, path))
        except FileNotFoundError:
            continue
    for _, path in sorted(kept)[:-MAX_KEPT]:
        path.unlink(missing_ok=True)


__all__ = ["GuestError", "KeptBytecode", "bytecode_key", "compile_module"]
