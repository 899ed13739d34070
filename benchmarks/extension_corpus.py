"""Loads the real example extensions of pi, and reads files from one, all with the real dispatcher."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from benchmarks.measure import percentiles, resident, stretches
from benchmarks.pi_runtime import FILE, HOW_TO_GET, SOURCE, Times
from forestay.extensions import (
    Artifact,
    JavaScriptGuest,
    Program,
    Subject,
    Surroundings,
    compile_module,
    compile_source,
    sources,
)
from forestay.extensions.conform.host import Host, Place
from forestay.extensions.connectors.paths import Roots
from forestay.extensions.engine.kept_pages import held_bytes
from forestay.extensions.engine.pool import Pool
from forestay.kernel import Problem

Row = tuple[str, str, str]
PASSES = 3
CALLS = 500


def compiled(entries: list[Path]) -> list[Artifact]:
    """Return the entries that compile, with their bytecode, as the caches give them."""
    found = []
    for entry in entries:
        try:
            artifact, _ = compile_source(sources(entry)[0])
        except Problem:
            continue  # the example needs a package that it does not include
        found.append(_with_bytecode(artifact))
    return found


def _with_bytecode(artifact: Artifact) -> Artifact:
    data = compile_module(artifact.code.decode(), artifact.meta.entry_module)
    return msgspec.structs.replace(artifact, bytecode=data)


async def memory(artifacts: list[Artifact]) -> Row:
    """Measure the memory of all examples, loaded at the same time on one dispatcher."""
    what = "memory per loaded extension, the examples of pi"
    if not artifacts:
        return what, "not measured", HOW_TO_GET
    with tempfile.TemporaryDirectory(prefix="forestay-bench-") as work:
        place = Place(Path(work))
        async with Host(place, artifacts[0]) as host:
            before, pool = resident() + held_bytes(), Pool()
            asked = [await _loaded(host, place, artifact, pool) for artifact in artifacts]
            pool.wait()
            loaded = [subject for subject in asked if subject is not None]
            each = (resident() + held_bytes() - before) / len(loaded)
            for subject in loaded:
                await subject.close()
            pool.close()
    return (
        what,
        f"{each / 1024 / 1024:.1f} MB",
        f"{len(loaded)} at once, and what the pool keeps of them; limited by the pages that loading writes to: "
        "the rest is one image, shared by all",
    )


async def _loaded(host: Host, place: Place, artifact: Artifact, pool: Pool) -> JavaScriptGuest | None:
    name = artifact.meta.extension_id
    host.dispatcher.admit(Subject(name, Roots.of(place.project, extension=Path(artifact.root), temp=place.temp)))
    surroundings = Surroundings(name, str(place.project), artifact.root)
    subject = JavaScriptGuest(Program.of(artifact), surroundings, host.dispatcher, pool=pool)
    try:
        await subject.load()
    except Problem:
        return None  # the conformance report tests what an example needs from its host
    return subject


async def cold_loads(artifacts: list[Artifact], real: Times | str) -> list[Row]:
    what = "load, cold, the examples of pi (compiled artifact, no VM)"
    if not artifacts:
        return [(what, "not measured", HOW_TO_GET)]
    times, failed = [], 0
    with tempfile.TemporaryDirectory(prefix="forestay-bench-") as work:
        for number, artifact in enumerate(artifacts * PASSES):
            async with Host(Place(Path(work) / str(number)), artifact) as host:
                started = time.perf_counter()
                try:
                    await host.extension.load()
                    times.append(time.perf_counter() - started)
                except Problem:
                    failed += 1
    beside = f"bar: p95 60 ms; {len(times)} loads of {len(artifacts)} extensions"
    beside += f", {failed} refused" if failed else ""
    ours = (
        what,
        percentiles(times),
        f"{beside}; limited by reading the bytecode that is bundled with it, typebox above all",
    )
    return [ours, *_real_loads(real)]


def _real_loads(real: Times | str) -> list[Row]:
    what = "the same by the loader of pi 0.73.1 on Node"
    if isinstance(real, str):
        return [(what, "not measured", real)]
    first, later = real.loads[0], [took for each in real.loads[1:] for took in each]
    return [
        (
            f"{what}, its cache filled",
            percentiles(later),
            "one process, without the start of Node and the import of pi; no VM is made there",
        ),
        (
            f"{what}, nothing cached",
            percentiles(first),
            f"the very first one {first[0] * 1000:.0f} ms; ours would compile as well: see compiler",
        ),
    ]


@asynccontextmanager
async def with_files() -> AsyncIterator[JavaScriptGuest]:
    """Yield an extension whose tools use the file system through policy and evidence."""
    with tempfile.TemporaryDirectory(prefix="forestay-bench-") as work:
        entry = Path(work) / "own" / "index.js"
        entry.parent.mkdir()
        entry.write_text(SOURCE)
        artifact, _ = compile_source(sources(entry)[0])
        place = Place(Path(work) / "place")
        (place.project / "a.txt").write_text(FILE)
        async with Host(place, artifact) as host:
            await host.extension.load()
            yield host.extension


async def file_calls(real: Times | str) -> list[Row]:
    """Measure synchronous file calls on the VM's thread: JavaScript, policy, evidence, the disk, and back."""
    rows = []
    async with with_files() as extension:
        for tool, name in (("exists", "existsSync"), ("read", "readFileSync of 1 KB")):
            outcome = await extension.call_tool(tool, {"n": 4})
            if outcome.details != {"exists": True, "read": len(FILE)}[tool]:
                raise AssertionError(f"{name} answered {outcome}")
            best, everything = await stretches(lambda tool=tool: extension.call_tool(tool, {"n": 4}), CALLS)  # type: ignore[misc]
            beside = f"all: {percentiles(everything, 0.5, 0.95)}; {_of_pi(real, tool)}"
            beside += "; limited by the file shim in the engine, then by policy and evidence"
            rows.append((f"tool call with {name}, real dispatcher", percentiles(best), beside))
    return rows


def _of_pi(real: Times | str, tool: str) -> str:
    if isinstance(real, str):
        return "pi: not measured"
    return f"pi, in its own process: {percentiles(real.tools[tool], 0.5, 0.95)}"


def real_calls(real: Times | str) -> list[Row]:
    """Return the cost of a call and an event in pi, which has no sandbox."""
    if isinstance(real, str):
        return [("tool call and events in pi 0.73.1 on Node", "not measured", real)]
    rows = [
        ("tool call in pi 0.73.1 on Node", percentiles(real.tools["echo"]), "a function call: nothing is kept apart")
    ]
    for count, times in real.events.items():
        plural = "s" * (count != "1")
        rows.append(
            (
                f"event to {count} extension{plural} in pi 0.73.1 on Node",
                percentiles(times, 0.5, 0.99),
                "function calls",
            )
        )
    return rows
