"""A component that is ready to run: its machine code, its imports answered, its exports found.

A component is shared by all its instances. The functions that it imports find the instance that runs on their thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import wasmtime
from wasmtime import component as wasm

from forestay.extensions.components import wasi
from forestay.extensions.components.binary import outline
from forestay.extensions.components.native import native
from forestay.extensions.components.signature import signature
from forestay.extensions.components.values import Answer, add_answer, add_refusal, add_serving
from forestay.kernel import Problem

HOST, EXTENSION = "pi:extension/host", "pi:extension/extension"
MAX_CALL = 16 * 1024 * 1024  # bytes of one text of a host call
_RESULT = "->result<string,string>"
EXPORTS = {
    "init": f"(string){_RESULT}",
    "handle-tool": f"(string,string){_RESULT}",
    "handle-slash": f"(string,list<string>,string){_RESULT}",
    "handle-event": f"(string){_RESULT}",
    "shutdown": "()",
}
"""The world `pi:extension/pi-extension`: what a component exports."""


class Guarded(wasi.Confined, Protocol):
    """The instance that runs, as its imports see it. None of these raises."""

    def call_host(self, name: bytes, given: bytes) -> Answer: ...
    def refuse(self, name: str) -> str:
        """Record that an import was refused; the reason."""

    def released(self) -> None:
        """A handle is gone."""


class _Running(threading.local):
    instance: Guarded | None = None


running = _Running()


def _instance() -> Guarded:
    assert running.instance is not None  # only an instance that runs calls what it imports
    return running.instance


class LinkedComponent:
    """A component and its machine code; `refused` names the imports that nothing here answers."""

    def __init__(self, component: bytes, code: bytes) -> None:
        self.engine = native().engine
        self.memories = max(1, outline(component).memories)
        self.code = wasm.Component.deserialize(self.engine, code)
        self.refused: list[str] = []
        self._callbacks: list[Any] = []
        self._resources: dict[str, int] = {}
        self.exports = self._exports()
        self.linker = wasm.Linker(self.engine)
        self._link()

    def resource(self, name: str) -> int:
        """The number of a resource type: the same for the same name, as WASI's interfaces share them."""
        return self._resources.setdefault(name, len(self._resources) + 1)

    def _exports(self) -> dict[str, wasm.ExportIndex]:
        """Where each export of the world is; one that is missing or of another type is a Problem."""
        items = self.code.type.exports(self.engine)
        name = next((name for name in items if name.partition("@")[0] == EXTENSION), None)
        offered = _members(items[name].ty, self.engine) if name is not None else {}
        at = self.code.get_export_index(name) if name is not None else None
        found: dict[str, wasm.ExportIndex] = {}
        for export, expected in EXPORTS.items():
            kind = offered.get(export)
            index = self.code.get_export_index(export, at) if isinstance(kind, wasm.FuncType) else None
            if index is None or not isinstance(kind, wasm.FuncType) or signature(kind) != expected:
                raise Problem(
                    "extension_invalid",
                    f"The component does not export {EXTENSION}#{export} {expected}.",
                    at=f"{EXTENSION}#{export}",
                    fix="Build it for the world pi:extension/pi-extension.",
                )
            found[export] = index
        return found

    def _link(self) -> None:
        imports = self.code.type.imports(self.engine)
        with self.linker.root() as root:
            for name, item in imports.items():
                kind = item.ty
                if isinstance(kind, wasm.ComponentInstanceType):
                    with root.add_instance(name) as instance:
                        self._answer(instance, name, kind)
                else:
                    self._define(root, name, name, kind)

    def _answer(self, instance: wasm.LinkerInstance, interface: str, kind: wasm.ComponentInstanceType) -> None:
        for name, item in _members(kind, self.engine).items():
            self._define(instance, name, interface, item)

    def _define(self, instance: wasm.LinkerInstance, name: str, interface: str, kind: object) -> None:
        if isinstance(kind, wasm.ResourceType):
            instance.add_resource(name, wasm.ResourceType.host(self.resource(name)), _released)
        elif isinstance(kind, wasm.FuncType):
            self._callbacks.append(self._function(instance, name, interface, kind))
        elif not isinstance(kind, wasm.ValType):
            raise Problem("extension_invalid", f"The component imports {interface}, which cannot be given.")

    def _function(self, instance: wasm.LinkerInstance, name: str, interface: str, kind: wasm.FuncType) -> Any:
        if (interface.partition("@")[0], name) == (HOST, "call") and signature(kind) == EXPORTS["handle-tool"]:
            return add_serving(instance, name, _serve, MAX_CALL)
        known = wasi.answer(interface, name)
        if known is not None and signature(kind) == known[0]:
            return add_answer(instance, name, _with_instance(known[1]))
        self.refused.append(f"{interface}#{name}")
        return add_refusal(instance, name, _refusal(f"{interface}#{name}"))


def _members(kind: object, engine: wasmtime.Engine) -> dict[str, object]:
    if not isinstance(kind, wasm.ComponentInstanceType):
        return {}
    return {name: item.ty for name, item in kind.exports(engine).items()}


def _serve(name: bytes, given: bytes) -> Answer:
    return _instance().call_host(name, given)


def _with_instance(function: wasi.Function) -> Callable[..., Any]:
    return lambda *arguments: function(_instance(), *arguments)


def _refusal(name: str) -> Callable[[], str]:
    return lambda: _instance().refuse(name)


def _released(_store: wasmtime.StoreContext, _representation: int) -> None:
    _instance().released()
