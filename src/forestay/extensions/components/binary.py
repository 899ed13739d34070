"""Reads the binary format of a component, before anything compiles or runs it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import msgspec

from forestay.extensions.manifest import MAX_MANIFEST, Manifest, parse_manifest
from forestay.extensions.manifest import SCHEMA as MANIFEST_SECTION
from forestay.kernel import Problem, canonical

MAX_COMPONENT = 128 * 1024 * 1024
MAGIC, _MODULE, _COMPONENT = b"\0asm", b"\x01\0\0\0", b"\x0d\0\x01\0"
_PRECOMPILED = b"\x7fELF"
_CUSTOM, _CORE_MODULE, _NESTED = 0, 1, 4  # sections of a component
_MEMORIES = 5  # section of a core module
_MAX_DEPTH = 16


Bytes = bytes | mmap.mmap


class Outline(msgspec.Struct, frozen=True):
    """The number of memories that the modules of a component define, and the manifest that it carries."""

    memories: int
    manifest: bytes | None


def outline(data: Bytes) -> Outline:
    """Return the outline of a component; for anything else, raise a Problem that says what the bytes are instead."""
    _check_kind(data)
    memories, manifest = 0, None
    for depth, section, start, end in _component_sections(data, 0, len(data), 0):
        if section == _CORE_MODULE:
            memories += _memories(data, start, end)
        elif section == _CUSTOM and depth == 0:
            size, at = leb(data, start, end)
            if data[at : at + size] == MANIFEST_SECTION.encode():
                manifest = data[at + size : end]
    return Outline(memories, manifest)


def carried_manifest(path: Path) -> Manifest | None:
    """Return the manifest inside the component at `path`. This reads only section headers, not the whole file."""
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found = outline(data).manifest
        except ValueError:  # an empty file cannot be mapped
            found = outline(b"").manifest
    if found is None:
        return None
    document = canonical.decode(found, limit=MAX_MANIFEST)
    manifest = parse_manifest(document, f"{path.name}#{MANIFEST_SECTION}")
    return msgspec.structs.replace(manifest, entrypoint=path.name)


def is_core_module(data: Bytes) -> bool:
    return data[:8] == MAGIC + _MODULE


def custom_section(name: str, data: bytes) -> bytes:
    """Encode a custom section; it can be appended to any component."""
    body = encoded_leb(len(name.encode())) + name.encode() + data
    return bytes([_CUSTOM]) + encoded_leb(len(body)) + body


def _check_kind(data: Bytes) -> None:
    if len(data) > MAX_COMPONENT:
        raise Problem(
            "payload_too_large",
            f"The component has {len(data)} bytes; the limit is {MAX_COMPONENT}.",
            limit=MAX_COMPONENT,
            observed=len(data),
        )
    if data[:8] == MAGIC + _COMPONENT:
        return
    if data[:4] == _PRECOMPILED:
        raise _no_component(
            "This is precompiled machine code, which the host does not run.",
            "Give the component that it was compiled from.",
        )
    if is_core_module(data):
        raise _no_component("This is a core module, not a component.", "Make one with `forestay ext wrap`.")
    raise _no_component("This is not a WASM component.", "Build it for the world pi:extension/pi-extension.")


def _no_component(message: str, fix: str) -> Problem:
    return Problem("extension_invalid", message, fix=fix)


def _component_sections(data: Bytes, start: int, end: int, depth: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield depth, id, start and end of each section, nested components included."""
    if depth > _MAX_DEPTH:
        raise _damaged("components are nested too deeply")
    for section, first, last in sections(data, start + 8, end):
        if section == _NESTED:
            yield from _component_sections(data, first, last, depth + 1)
        else:
            yield depth, section, first, last


def sections(data: Bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield id, start and end of each section between two offsets."""
    while at < end:
        size, start = leb(data, at + 1, end)
        if start + size > end:
            raise _damaged("a section ends after the file does")
        yield data[at], start, start + size
        at = start + size


def _memories(data: Bytes, start: int, end: int) -> int:
    return sum(
        leb(data, first, last)[0] for section, first, last in sections(data, start + 8, end) if section == _MEMORIES
    )


def leb(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Decode an unsigned number of at most 32 bits; return it with the offset after it."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _damaged("a number has no end")


def encoded_leb(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _damaged(why: str) -> Problem:
    return _no_component(f"The component is damaged: {why}.", "Build it again.")
