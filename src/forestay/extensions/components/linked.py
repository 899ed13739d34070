"""A component that is ready to run: its machine code, the answers to its imports, and its exports.

All instances share the component. An imported function finds its instance by the thread that runs it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import msgspec
import wasmtime
from wasmtime import component as wasm

from forestay.extensions.components import fibers, wasi
from forestay.extensions.components.native import machine_code, native
from forestay.extensions.components.outside import EXPORTS, HOST, Compiled, Import, Outside
from forestay.extensions.components.values import Answer, add_answer, add_refusal, add_serving

MAX_CALL = 16 * 1024 * 1024  # bytes of one text of a host call
MAX_SHARED = 128  # imports up to which components with the same imports share their answers


class Guarded(wasi.Confined, fibers.Asking, Protocol):
    """A running instance, as its imports see it. None of these raises."""

    def call_host(self, name: bytes, given: bytes) -> Answer: ...
    def refuse(self, name: str) -> str:
        """Record that an import was refused; return the reason."""

    def released(self) -> None:
        """Count a handle that was dropped."""


class _Running(threading.local):
    instance: Guarded | None = None


running = _Running()


def _instance() -> Guarded:
    assert running.instance is not None  # only a running instance calls imports
    return running.instance


class Imports:
    """The answers to imports, shared by components with the same imports; `refused` lists the unanswered ones."""

    def __init__(self, outside: Outside, on_fibers: bool) -> None:
        self.refused: list[str] = []
        self._on_fibers = on_fibers
        self._callbacks: list[Any] = []
        self._resources: dict[str, int] = {}
        self.linker = wasm.Linker(native().engine)
        with self.linker.root() as root:
            for item in outside.alone:
                self._define(root, item.name, item)
            for interface, items in outside.interfaces.items():
                with root.add_instance(interface) as instance:
                    for item in items:
                        self._define(instance, interface, item)

    def resource(self, name: str) -> int:
        """Return the number of a resource type; WASI's interfaces share types, so a name has one number."""
        return self._resources.setdefault(name, len(self._resources) + 1)

    def _define(self, instance: wasm.LinkerInstance, interface: str, item: Import) -> None:
        if item.signature is None:
            instance.add_resource(item.name, wasm.ResourceType.host(self.resource(item.name)), _released)
        else:
            self._callbacks.append(self._function(instance, interface, item.name, item.signature))

    def _function(self, instance: wasm.LinkerInstance, interface: str, name: str, kind: str) -> Any:
        if (interface.partition("@")[0], name) == (HOST, "call") and kind == EXPORTS["handle-tool"]:
            if self._on_fibers:
                return fibers.add_asking(instance, name, _instance, MAX_CALL)
            return add_serving(instance, name, _serve, MAX_CALL)
        known = wasi.answer(interface, name)
        if known is not None and kind == known[0]:
            return add_answer(instance, name, _with_instance(known[1]))
        self.refused.append(f"{interface}#{name}")
        return add_refusal(instance, name, _refusal(f"{interface}#{name}"))


class LinkedComponent:
    """A component with its machine code and the answers to its imports."""

    def __init__(self, compiled: Compiled) -> None:
        self.engine = native().engine
        self.memories = compiled.memories
        self.code = machine_code(compiled.code)
        self.imports = _imports(compiled.outside)
        self._at = _index(self.code.get_export_index(compiled.outside.extension))
        self._exports: dict[str, wasm.ExportIndex] = {}

    def export(self, name: str) -> wasm.ExportIndex:
        """Return the index of a function of the world; look it up on first use."""
        found = self._exports.get(name)
        if found is None:
            found = self._exports[name] = _index(self.code.get_export_index(name, self._at))
        return found


def _imports(outside: Outside) -> Imports:
    """Return the answers to a component's imports: shared, unless it has more than `MAX_SHARED` imports."""
    if len(outside.alone) + sum(map(len, outside.interfaces.values())) > MAX_SHARED:
        return Imports(outside, fibers.SUPPORTED)
    return _shared(msgspec.msgpack.encode(outside), fibers.SUPPORTED)


@lru_cache(maxsize=32)
def _shared(outside: bytes, on_fibers: bool) -> Imports:
    return Imports(msgspec.msgpack.decode(outside, type=Outside), on_fibers)


def _index(found: wasm.ExportIndex | None) -> wasm.ExportIndex:
    assert found is not None, "its types say that it is there"
    return found


def _serve(name: bytes, given: bytes) -> Answer:
    return _instance().call_host(name, given)


def _with_instance(function: wasi.Function) -> Callable[..., Any]:
    return lambda *arguments: function(_instance(), *arguments)


def _refusal(name: str) -> Callable[[], str]:
    return lambda: _instance().refuse(name)


def _released(_store: wasmtime.StoreContext, _representation: int) -> None:
    _instance().released()
