"""A node pack's module (OpenWOP RFC 0008): lists its nodes and invokes them, each time in a new instance.

W1  The module can call only the functions of the namespace `openwop`; a pack with any other import is refused.
W2  An invocation has a cap of memory and of time. Exceeding a cap is a `Breach`, and the instance is gone (§K).
W3  The same request and the same host answers give the same response (§G).
W4  The module's output is read within limits; whatever it does, it raises only the exceptions of this file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
import wasmtime

from forestay.extensions.compiler.cache import default_cache
from forestay.extensions.components.compile import compiled_apart
from forestay.extensions.components.native import compiled_key, module_settings
from forestay.extensions.engine.bytecode import KeptBytecode
from forestay.extensions.engine.pulse import TICK_SECONDS, Pulse
from forestay.extensions.node_packs import memories
from forestay.kernel import Problem

ABI = 1
MAX_NODES, MAX_TEXT, MAX_RESPONSE = 256, 512, 16 * 1024 * 1024
_SPACE = "openwop"
_WORD = 0xFFFFFFFF
_I32, _I64 = wasmtime.ValType.i32(), wasmtime.ValType.i64()
_NEEDED = ("abi_version", "pack_name", "node_count", "node_id_at", "alloc", "free", "node_invoke")


class Breach(Exception):
    """An invocation exceeded a cap: `wasm-memory` (bytes) or `wasm-execution-time` (milliseconds)."""

    def __init__(self, kind: str, limit: int, observed: int) -> None:
        super().__init__(kind)
        self.kind, self.limit, self.observed = kind, limit, observed


class Broken(Exception):
    """The module trapped, or broke the ABI."""


class Unanswered(Exception):
    """The module asks a person, and the answer is not there yet."""

    def __init__(self, payload: Any) -> None:
        super().__init__("asked")
        self.payload = payload


class PackHost(Protocol):
    """The host functions for a module during an invocation. None and a status other than 0 are answers too."""

    def read(self, channel: bool, name: str) -> bytes | None: ...
    def write(self, channel: bool, name: str, value: bytes) -> int: ...
    def interrupt(self, payload: bytes) -> bytes:
        """Return the answer to a question; raise `Unanswered` when it is not there yet."""

    def log(self, level: int, text: str) -> None: ...
    def now_ms(self) -> int: ...
    def random(self, count: int) -> bytes: ...


class Offered(msgspec.Struct, frozen=True):
    """The name of a module's pack, and its node types."""

    pack: str
    nodes: tuple[str, ...]


class _Engine:
    def __init__(self) -> None:
        config = module_settings()
        self.memories = memories.Memories(config)
        self.engine = wasmtime.Engine(config)
        self.pulse = Pulse(self.engine.increment_epoch)


@lru_cache(maxsize=1)
def _engine() -> _Engine:
    return _Engine()


class PackModule:
    """The compiled module of one pack; `memory` (bytes) and `seconds` are the caps of an invocation (W2)."""

    def __init__(self, data: bytes, *, memory: int, seconds: float, kept: KeptBytecode | None = None) -> None:
        self._memory, self._seconds = memory, seconds
        self._module = wasmtime.Module.deserialize(_engine().engine, _compiled(data, kept))
        names = {f"openwop_{name}" for name in _NEEDED} | {"memory"}
        if missing := names - {item.name for item in self._module.exports}:
            raise Broken(f"It does not export {', '.join(sorted(missing))}.")
        for item in self._module.imports:
            if item.module != _SPACE or item.name not in _IMPORTS or not isinstance(item.type, wasmtime.FuncType):
                raise Broken(f"It imports {item.module}.{item.name}, which is not part of the ABI.")

    def offered(self) -> Offered:
        """Return its name and its node types; raise a Problem when it is made for another ABI (§H)."""

        def ask(call: _Invocation) -> Offered:
            version = call.number("abi_version")
            if version != ABI:
                told = f"The pack is made for version {version} of the ABI."
                raise Problem("config_invalid", told, reason="unsupported_abi_version", supported=[ABI])
            count = call.number("node_count")
            if count > MAX_NODES:
                raise Broken(f"It has more than {MAX_NODES} nodes.")
            nodes = tuple(call.text("node_id_at", index) for index in range(count))
            return Offered(call.text("pack_name"), nodes)

        found: Offered = self._entered(_Silent(), ask)
        return found

    def invoke(self, index: int, request: bytes, host: PackHost) -> bytes:
        """Return the module's response to a request, unparsed. Blocks; call it on a thread."""

        def ask(call: _Invocation) -> bytes:
            at = call.put(request)
            return call.take(call.function("node_invoke")(call.store, index, at, len(request)), MAX_RESPONSE)

        found: bytes = self._entered(host, ask)
        return found

    def _entered(self, host: PackHost, work: Callable[[_Invocation], Any]) -> Any:
        native = _engine()
        store = wasmtime.Store(native.engine)
        store.set_limits(table_elements=65_536, instances=1, tables=8, memories=1)
        store.set_epoch_deadline(max(1, int(self._seconds / TICK_SECONDS)))
        memories.begin(self._memory)
        native.pulse.hold()
        native.pulse.begin(store)
        began = time.monotonic()
        try:
            instance = _linked(native.engine, self._module, host).instantiate(store, self._module)
            return work(_Invocation(store, instance.exports(store)))
        except (wasmtime.WasmtimeError, wasmtime.Trap, MemoryError, IndexError, UnicodeError) as error:
            if (observed := memories.refused()) is not None:
                raise Breach("wasm-memory", self._memory, observed) from error
            if "wasm trap: interrupt" in str(error):
                taken = int((time.monotonic() - began) * 1000)
                raise Breach("wasm-execution-time", int(self._seconds * 1000), taken) from error
            raise Broken((str(error).strip().splitlines() or [type(error).__name__])[-1].strip()[:300]) from error
        finally:
            native.pulse.end(store)
            native.pulse.release()


class _Invocation:
    """A running instance, used from outside or (with a caller as `store`) inside a host function that it calls."""

    def __init__(self, store: Any, exports: Any) -> None:
        self.store = store
        self._exports = exports

    def function(self, name: str) -> Any:
        return self._exports[f"openwop_{name}"]

    def number(self, name: str) -> int:
        return int(self.function(name)(self.store)) & _WORD

    def text(self, name: str, *arguments: int) -> str:
        return self.take(self.function(name)(self.store, *arguments), MAX_TEXT).decode()

    def take(self, pair: Any, most: int) -> bytes:
        """Read the bytes of an (address, size) pair, packed or not; then free them in the module (§E)."""
        at, size = (pair & _WORD, pair >> 32 & _WORD) if isinstance(pair, int) else (pair[0] & _WORD, pair[1] & _WORD)
        found = self.read(at, size, most)
        if size:
            self.function("free")(self.store, at, size)
        return found

    def read(self, at: int, size: int, most: int) -> bytes:
        at, size, memory = at & _WORD, size & _WORD, self._exports["memory"]
        if size > most or at + size > memory.data_len(self.store):
            raise IndexError("It points outside its memory, or exceeds a size limit.")
        return bytes(memory.read(self.store, at, at + size))

    def put(self, data: bytes) -> int:
        """Copy `data` into memory that the module allocates; return its address."""
        at = int(self.function("alloc")(self.store, len(data))) & _WORD
        memory = self._exports["memory"]
        if at + len(data) > memory.data_len(self.store):
            raise IndexError("It allocated memory outside its memory.")
        memory.write(self.store, data, at)
        return at


class _Silent:
    """The host of a module that only lists its nodes, outside any run."""

    def read(self, channel: bool, name: str) -> bytes | None:
        return None

    def write(self, channel: bool, name: str, value: bytes) -> int:
        return 99

    def interrupt(self, payload: bytes) -> bytes:
        return b"null"

    def log(self, level: int, text: str) -> None:
        return

    def now_ms(self) -> int:
        return 0

    def random(self, count: int) -> bytes:
        return bytes(count)


def kept_code(data: Path | None) -> KeptBytecode | None:
    """Return the cache of machine code of a host's data folder, under its seal."""
    cache = default_cache(data)
    return None if cache is None else KeptBytecode(cache.folder / "components", cache.seal, lambda _what, _file: None)


def _compiled(data: bytes, kept: KeptBytecode | None) -> bytes:
    key = compiled_key(b"module\0" + data)
    found = kept.find(key) if kept is not None else None
    if found is None:
        found = compiled_apart(data, kind="module")
        if kept is not None:
            kept.keep(key, found)
    return found


class _Given:
    """The host functions for a module: names and values are pointers into its memory."""

    def __init__(self, host: PackHost) -> None:
        self._host = host

    def channel_read(self, call: _Invocation, at: int, size: int) -> bytes | None:
        return self._host.read(True, self._text(call, at, size))

    def channel_write(self, call: _Invocation, at: int, size: int, value: int, length: int) -> int:
        return self._host.write(True, self._text(call, at, size), call.read(value, length, MAX_RESPONSE))

    def variable_get(self, call: _Invocation, at: int, size: int) -> bytes | None:
        return self._host.read(False, self._text(call, at, size))

    def variable_set(self, call: _Invocation, at: int, size: int, value: int, length: int) -> int:
        return self._host.write(False, self._text(call, at, size), call.read(value, length, MAX_RESPONSE))

    def interrupt(self, call: _Invocation, at: int, size: int) -> bytes:
        return self._host.interrupt(call.read(at, size, MAX_RESPONSE))

    def log(self, call: _Invocation, level: int, at: int, size: int) -> None:
        self._host.log(level, call.read(at, size, MAX_RESPONSE).decode("utf-8", "replace"))

    def now_ms(self, _call: _Invocation) -> int:
        return self._host.now_ms()

    def random(self, call: _Invocation, at: int, size: int) -> None:
        size &= _WORD
        call.read(at, size, MAX_RESPONSE)  # checks that the range is in its memory
        call._exports["memory"].write(call.store, self._host.random(size), at & _WORD)

    def _text(self, call: _Invocation, at: int, size: int) -> str:
        return call.read(at, size, MAX_TEXT).decode()


_IMPORTS = {
    f"openwop_{name}": name
    for name in (
        "channel_read",
        "channel_write",
        "variable_get",
        "variable_set",
        "interrupt",
        "log",
        "now_ms",
        "random",
    )
}


def _linked(engine: wasmtime.Engine, module: wasmtime.Module, host: PackHost) -> wasmtime.Linker:
    linker, given = wasmtime.Linker(engine), _Given(host)
    for item in module.imports:
        assert isinstance(item.type, wasmtime.FuncType) and item.name is not None, "else the pack is refused"
        answers = _answering(getattr(given, _IMPORTS[item.name]), packed=item.type.results == [_I64])
        linker.define_func(_SPACE, item.name, item.type, answers, access_caller=True)
    return linker


def _answering(function: Callable[..., Any], *, packed: bool) -> Callable[..., Any]:
    """Wrap a host function for the engine: it copies result bytes into the module, in the form of the import's type."""

    def answer(caller: Any, *arguments: int) -> Any:
        call = _Invocation(caller, caller)
        found = function(call, *arguments)
        if not isinstance(found, bytes) and (found is not None or function.__name__ in ("log", "random")):
            return found
        at, size = (call.put(found), len(found)) if found is not None else (0, 0)
        return size << 32 | at if packed else (at, size)

    return answer
