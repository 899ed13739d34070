"""Components: loading from machine code, calling a tool without and with a host call, the memory of an instance.

The component is a small one without a library, as C makes it; the real dispatcher answers its host call.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import msgspec
from tests.extensions.components.guests import component
from tests.extensions.dispatcher_world import World

from benchmarks import component_languages
from benchmarks.measure import duration, percentile, percentiles, resident, stretches
from forestay.extensions.components.compile import compiled
from forestay.extensions.components.guest import ComponentGuest
from forestay.extensions.components.instance import Instance
from forestay.extensions.components.linked import LinkedComponent
from forestay.extensions.components.outside import Compiled
from forestay.extensions.engine.bytecode import KeptBytecode
from forestay.extensions.engine.limits import Limits
from forestay.extensions.manifest import SCHEMA, Manifest
from forestay.kernel import Seal

Row = tuple[str, str, str]
LOADS, CALLS, INSTANCES = 200, 1_000, 50
BIG, FEW = 1024 * 1024, 20  # a compiled form of this many bytes or more is loaded fewer times
MANIFEST = Manifest(SCHEMA, "ext.test", "probe", "1.0.0", "1.0", "wasm", "probe.wasm")


class Answering:
    """A host that answers immediately."""

    def clock_ns(self, monotonic: bool) -> int:
        return 0

    def random(self, count: int) -> bytes:
        return bytes(count)

    def sync(self, request: bytes) -> bytes:
        return b'+{"exists":true}'


def run() -> list[Row]:
    data = component()
    started = time.perf_counter()
    made = compiled(data)
    rows = [("component: compile, in its own process", duration(time.perf_counter() - started), f"{len(data)} bytes")]
    rows += _engine(made)
    with tempfile.TemporaryDirectory() as folder:
        rows += asyncio.run(_guest(made, Path(folder)))
    return rows + component_languages.rows(component_languages.Measures(_loads, _from_file, _weight))


def _engine(made: Compiled) -> list[Row]:
    linked = LinkedComponent(made)
    first = Instance(linked, Answering(), Limits(), lambda _name: None)  # the host is already running
    loads, read = _loads(made), _from_file(made)
    first.close()
    rows = [
        ("component: load from its compiled form, link, init", percentiles(loads, 0.5, 0.95), "goal: p95 under 1 ms"),
        ("component: the same from its file, which is read and verified", percentiles(read, 0.5, 0.95), ""),
        ("component: memory of an instance", f"{_weight(made) / 1024:.0f} KB", f"{INSTANCES} of them"),
    ]
    instance = Instance(linked, Answering(), Limits(), lambda _name: None)
    instance.call("init", b"{}")
    for name, tool in (("call", b"echo"), ("call with a host call", b"fs")):
        taken = []
        for _ in range(CALLS):
            started = time.perf_counter()
            instance.call("handle-tool", tool, b'{"n":1}')
            taken.append(time.perf_counter() - started)
        rows.append((f"component: {name}, the engine alone", percentiles(taken, 0.5, 0.95), ""))
    instance.close()
    return rows


def _weight(made: Compiled) -> float:
    """Return the bytes of memory that one instance has written after its start."""
    count = INSTANCES if len(made.code) < BIG else FEW
    linked, before = LinkedComponent(made), resident()
    instances = [Instance(linked, Answering(), Limits(), lambda _name: None) for _ in range(count)]
    for one in instances:
        one.call("init", b"{}")
    weight = (resident() - before) / count
    for one in instances:
        one.close()
    return weight


def _loads(made: Compiled, *, sealed: bool = False) -> list[float]:
    """Return the seconds from the compiled form, or from its `sealed` file, to a started instance.

    For a small component, the fastest of five stretches counts, as for calls: the machine also does other work.
    """
    encoded = msgspec.msgpack.encode(made)
    small = len(encoded) < BIG
    with tempfile.TemporaryDirectory() as folder:
        kept = KeptBytecode(Path(folder), Seal(bytes(32)))
        kept.keep("0", encoded)
        found = [_stretch(kept if sealed else None, encoded, LOADS if small else FEW) for _ in range(5 if small else 1)]
    return min(found, key=lambda taken: percentile(taken, 0.5))


def _stretch(kept: KeptBytecode | None, encoded: bytes, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        started = time.perf_counter()
        form = kept.find("0") if kept is not None else encoded
        assert form is not None
        linked = LinkedComponent(msgspec.msgpack.decode(form, type=Compiled))
        instance = Instance(linked, Answering(), Limits(), lambda _name: None)
        instance.call("init", b"{}")
        taken.append(time.perf_counter() - started)
        instance.close()
        del form, linked, instance  # not during the next measurement
    return taken


def _from_file(made: Compiled) -> list[float]:
    return _loads(made, sealed=True)


async def _guest(made: Compiled, folder: Path) -> list[Row]:
    world = World(folder, grants=["read"])
    subject = msgspec.structs.replace(world.dispatcher.authority.subject("ext.test"), runtime="wasm")
    world.dispatcher.admit(subject)
    guest = ComponentGuest(MANIFEST, "sha256:0", lambda: LinkedComponent(made), world.dispatcher)
    await guest.load()
    rows = []
    asked = {"op": "exists", "path": "a.txt"}
    for name, tool, goal in (("tool call", "echo", "20 us"), ("tool call with a host call", "fs", "100 us")):
        best, _ = await stretches(lambda tool=tool: guest.call_tool(tool, asked), CALLS)  # type: ignore[misc]
        rows.append((f"component: {name}", percentiles(best, 0.5, 0.95), f"goal: p50 under {goal}"))
    await guest.close()
    world.close()
    return rows
