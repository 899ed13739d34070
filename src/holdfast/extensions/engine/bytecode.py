"""Bytecode of artifacts, kept by the hash of their text and of the engine: it loads several times faster than text.

Bytecode is trusted by the engine, so it is only ever made here, from text, and never taken from an artifact.
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
    if path is not None and path.exists():
        return path.read_bytes()
    vm = Vm(Nobody(), Limits(slice_ms=60_000))
    try:
        vm.initialize()
        with vm.running():
            data = vm.compile(text, name)
    finally:
        vm.close()
    if path is not None:
        write_file(path, data)
    return data


__all__ = ["GuestError", "bytecode_key", "compile_module"]
