"""Bytecode of artifacts, kept by the hash of their text and of the engine: it loads several times faster than text.

Bytecode is trusted by the engine, so it is only ever made here, from text, and never taken from an artifact. What is
kept carries its own hash in front: a file that was cut short or changed is made again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from holdfast.extensions.engine.limits import GuestError, Limits
from holdfast.extensions.engine.native import native, write_file
from holdfast.extensions.engine.snapshot import Nobody
from holdfast.extensions.engine.vm import Vm


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
        write_file(path, hashlib.sha256(data).digest() + data)
    return data


def _kept(path: Path) -> bytes | None:
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    return whole[32:] if hashlib.sha256(whole[32:]).digest() == whole[:32] else None


__all__ = ["GuestError", "bytecode_key", "compile_module"]
