"""The packets that esbuild's service speaks on its standard streams: a length, an id, one value."""

from __future__ import annotations

import struct
from typing import Any

_U32 = struct.Struct("<I")


def encode(packet_id: int, is_request: bool, value: Any) -> bytes:
    """One packet, its length in front."""
    out = bytearray(_U32.pack((packet_id << 1) | (0 if is_request else 1)))
    _write(out, value)
    return _U32.pack(len(out)) + bytes(out)


def decode(body: bytes) -> tuple[int, bool, Any]:
    """The id, whether it is a request, and the value of a packet without its length."""
    (tag,) = _U32.unpack_from(body, 0)
    value, _ = _read(body, 4)
    return tag >> 1, not tag & 1, value


def _write(out: bytearray, value: Any) -> None:
    if value is None:
        out.append(0)
    elif isinstance(value, bool):
        out += bytes((1, value))
    elif isinstance(value, int):
        out.append(2)
        out += _U32.pack(value & 0xFFFFFFFF)
    elif isinstance(value, str):
        out.append(3)
        _write_bytes(out, value.encode())
    elif isinstance(value, bytes):
        out.append(4)
        _write_bytes(out, value)
    elif isinstance(value, list | tuple):
        out.append(5)
        out += _U32.pack(len(value))
        for item in value:
            _write(out, item)
    elif isinstance(value, dict):
        out.append(6)
        out += _U32.pack(len(value))
        for key, item in value.items():
            _write_bytes(out, key.encode())
            _write(out, item)
    else:
        raise TypeError(f"{type(value).__name__} has no place in a packet")


def _write_bytes(out: bytearray, data: bytes) -> None:
    out += _U32.pack(len(data))
    out += data


def _read(body: bytes, at: int) -> tuple[Any, int]:
    kind = body[at]
    at += 1
    if kind == 0:
        return None, at
    if kind == 1:
        return bool(body[at]), at + 1
    (size,) = _U32.unpack_from(body, at)
    at += 4
    if kind == 2:
        return size, at
    if kind == 3:
        return body[at : at + size].decode(), at + size
    if kind == 4:
        return body[at : at + size], at + size
    if kind == 5:
        items = []
        for _ in range(size):
            item, at = _read(body, at)
            items.append(item)
        return items, at
    members: dict[str, Any] = {}
    for _ in range(size):
        (length,) = _U32.unpack_from(body, at)
        key = body[at + 4 : at + 4 + length].decode()
        members[key], at = _read(body, at + 4 + length)
    return members, at
