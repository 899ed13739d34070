"""Components: loading from machine code, calling a tool without and with a host call, what an instance weighs.

The component is a small one without a library, as C makes it; the door behind its host call is the real one.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import msgspec
from tests.extensions.components.guests import component
from tests.extensions.dispatcher_world import World

from benchmarks.measure import duration, percentiles, resident, stretches
from forestay.extensions.components.compile import compiled
from forestay.extensions.components.guest import ComponentGuest
from forestay.extensions.components.instance import Instance
from forestay.extensions.components.linked import LinkedComponent
from forestay.extensions.engine.limits import Limits
from forestay.extensions.manifest import SCHEMA, Manifest

Row = tuple[str, str, str]
LOADS, CALLS, INSTANCES = 200, 1_000, 50
MANIFEST = Manifest(SCHEMA, "ext.test", "probe", "1.0.0", "1.0", "wasm", "probe.wasm")


class Answering:
    """A host that answers at once."""

    def clock_ns(self, monotonic: bool) -> int:
        return 0

    def random(self, count: int) -> bytes:
        return bytes(count)

    def sync(self, request: bytes) -> bytes:
        return b'+{"exists":true}'


def run() -> list[Row]:
    data = component()
    started = time.perf_counter()
    code = compiled(data)
    rows = [("component: compile, in its own process", duration(time.perf_counter() - started), f"{len(data)} bytes")]
    rows += _engine(data, code)
    with tempfile.TemporaryDirectory() as folder:
        rows += asyncio.run(_guest(data, code, Path(folder)))
    return rows


def _engine(data: bytes, code: bytes) -> list[Row]:
    loads = []
    for _ in range(LOADS):
        started = time.perf_counter()
        instance = Instance(LinkedComponent(data, code), Answering(), Limits(), lambda _name: None)
        instance.call("init", b"{}")
        loads.append(time.perf_counter() - started)
        instance.close()
    linked = LinkedComponent(data, code)
    before = resident()
    instances = [Instance(linked, Answering(), Limits(), lambda _name: None) for _ in range(INSTANCES)]
    for one in instances:
        one.call("init", b"{}")
    weight = (resident() - before) / INSTANCES
    rows = [
        ("component: load from machine code, link, init", percentiles(loads, 0.5, 0.95), "goal: p95 under 1 ms"),
        ("component: memory of an instance", f"{weight / 1024:.0f} KB", f"{INSTANCES} of them"),
    ]
    for name, tool in (("call", b"echo"), ("call with a host call", b"fs")):
        taken = []
        for _ in range(CALLS):
            started = time.perf_counter()
            instances[0].call("handle-tool", tool, b'{"n":1}')
            taken.append(time.perf_counter() - started)
        rows.append((f"component: {name}, the engine alone", percentiles(taken, 0.5, 0.95), ""))
    for one in instances:
        one.close()
    return rows


async def _guest(data: bytes, code: bytes, folder: Path) -> list[Row]:
    world = World(folder, grants=["read"])
    subject = msgspec.structs.replace(world.dispatcher.authority.subject("ext.test"), runtime="wasm")
    world.dispatcher.admit(subject)
    guest = ComponentGuest(MANIFEST, "sha256:0", lambda: LinkedComponent(data, code), world.dispatcher)
    await guest.load()
    rows = []
    asked = {"op": "exists", "path": "a.txt"}
    for name, tool, goal in (("tool call", "echo", "20 us"), ("tool call with a host call", "fs", "100 us")):
        best, _ = await stretches(lambda tool=tool: guest.call_tool(tool, asked), CALLS)  # type: ignore[misc]
        rows.append((f"component: {name}", percentiles(best, 0.5, 0.95), f"goal: p50 under {goal}"))
    await guest.close()
    world.close()
    return rows
