"""Bytecode of artifacts, kept by the hash of their text and of the engine: it loads several times faster than text.

Bytecode is trusted by the engine, so it is only ever made here, from text, and never taken from an artifact. What is
kept carries its own hash in front: a file that was cut short or changed is made again.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from holdfast.extensions.engine.limits import GuestError, Limits
from holdfast.extensions.engine.native import native, write_file
from holdfast.extensions.engine.snapshot import Nobody
from holdfast.extensions.engine.vm import Vm

MAX_KEPT = 256


def bytecode_key(text: str, name: str) -> str:
    return hashlib.sha256(f"{native().digest}\0{name}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()


def compile_module(text: str, name: str, cache: Path | None = None) -> bytes:
    """Bytecode of an ES module; a syntax error is a GuestError."""
    path = cache / f"{bytecode_key(text, name)}.qbc" if cache is not None else None
    kept = _kept(path) if path is not None else None
    if kept is not None:
        return kept
    vm = Vm(Nobody(), Limits(slice_ms=60_000))
    try:
        vm.initialize()
        with vm.running():
            data = vm.compile(text, name)
    finally:
        vm.close()
    if path is not None:
        with suppress(OSError):  # where nothing can be kept, it is made again
            write_file(path, hashlib.sha256(data).digest() + data)
            _forget_oldest(path.parent)
    return data


def _kept(path: Path) -> bytes | None:
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    return whole[32:] if hashlib.sha256(whole[32:]).digest() == whole[:32] else None


def _forget_oldest(folder: Path) -> None:
    """Keep `MAX_KEPT` files; what is missing can be made again, and others may be doing the same."""
    kept = []
    for path in folder.glob("*.qbc"):
        try:
            kept.append((path.stat().st_mtime_ns, path))
        except FileNotFoundError:
            continue
    for _, path in sorted(kept)[:-MAX_KEPT]:
        path.unlink(missing_ok=True)


__all__ = ["GuestError", "bytecode_key", "compile_module"]
