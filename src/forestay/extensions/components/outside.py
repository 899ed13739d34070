"""A component's imports and the world's exports, read from its types.

Reading the types takes longer than the rest of a load, so the result is cached with the machine code.
"""

from __future__ import annotations

import msgspec
import wasmtime
from wasmtime import component as wasm

from forestay.extensions.components.signature import signature
from forestay.kernel import Problem

HOST, EXTENSION = "pi:extension/host", "pi:extension/extension"
_RESULT = "->result<string,string>"
EXPORTS = {
    "init": f"(string){_RESULT}",
    "handle-tool": f"(string,string){_RESULT}",
    "handle-slash": f"(string,list<string>,string){_RESULT}",
    "handle-event": f"(string){_RESULT}",
    "shutdown": "()",
}
"""The world `pi:extension/pi-extension`: what a component exports."""


class Import(msgspec.Struct, frozen=True):
    """One import of a component: a function with its signature, or a resource."""

    name: str
    signature: str | None


class Outside(msgspec.Struct, frozen=True):
    """The imports and exports in a component's types; the same for every load of the same component."""

    extension: str
    """The name under which it exports the extension interface."""
    interfaces: dict[str, list[Import]]
    alone: list[Import]
    """Functions and resources outside any interface."""


class Compiled(msgspec.Struct, frozen=True):
    """A component as it is cached: its machine code and the facts about it."""

    outside: Outside
    memories: int
    """The number that its modules define, at least 1; they share the memory limit equally."""
    code: bytes


def outside_of(code: wasm.Component, engine: wasmtime.Engine) -> Outside:
    """Read the types of a component; raise a Problem when it does not fit the world."""
    interfaces: dict[str, list[Import]] = {}
    alone: list[Import] = []
    for name, item in code.type.imports(engine).items():
        if isinstance(item.ty, wasm.ComponentInstanceType):
            members = (_import(inner, name, kind) for inner, kind in _members(item.ty, engine).items())
            interfaces[name] = [found for found in members if found is not None]
        elif (found := _import(name, name, item.ty)) is not None:
            alone.append(found)
    return Outside(_extension(code, engine), interfaces, alone)


def _import(name: str, interface: str, kind: object) -> Import | None:
    """Return the import, or None for a plain type, which needs no answer."""
    if isinstance(kind, wasm.ResourceType):
        return Import(name, None)
    if isinstance(kind, wasm.FuncType):
        return Import(name, signature(kind))
    if isinstance(kind, wasm.ValType):
        return None
    raise Problem("extension_invalid", f"The component imports {interface}, which the host cannot provide.")


def _extension(code: wasm.Component, engine: wasmtime.Engine) -> str:
    """Return the interface that has the world's exports; raise a Problem when one is missing or has another type."""
    items = code.type.exports(engine)
    name = next((name for name in items if name.partition("@")[0] == EXTENSION), "")
    offered = _members(items[name].ty, engine) if name else {}
    for export, expected in EXPORTS.items():
        kind = offered.get(export)
        if not isinstance(kind, wasm.FuncType) or signature(kind) != expected:
            raise Problem(
                "extension_invalid",
                f"The component does not export {EXTENSION}#{export} {expected}.",
                at=f"{EXTENSION}#{export}",
                fix="Build it for the world pi:extension/pi-extension.",
            )
    return name


def _members(kind: object, engine: wasmtime.Engine) -> dict[str, object]:
    if not isinstance(kind, wasm.ComponentInstanceType):
        return {}
    return {name: item.ty for name, item in kind.exports(engine).items()}
