"""Bars of the compiler and of calls from extensions."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks import extension_corpus, extensions
from benchmarks.bars.bar import Bar, Measured
from benchmarks.measure import percentile, stretches
from forestay.extensions import Corpus, build, packages_of
from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.bundle import bundle
from forestay.extensions.compiler.cache import Cache
from forestay.extensions.compiler.scan import reading
from forestay.extensions.compiler.scan.syntax import File
from forestay.extensions.compiler.source import source
from forestay.kernel import Problem, Seal

_MOST = 60
_KNOWN = "the host knows its own `typebox`"
_BYTES = 10_000_000


def bars(share: float) -> list[Bar]:
    return [
        Bar("build", f"cold build of an extension, p95; {_KNOWN}", "ms", 0.541, 0.150, lambda: _build(share)),
        Bar("scan", "reading 10 MB of bundle, processor", "s", 52 * 10 / 7, 3.0, lambda: _scan(share)),
        Bar("exists", "tool call with `existsSync`, p50", "us", 256e-6, 90e-6, lambda: _file("exists", share)),
        Bar("read", "tool call with `readFileSync` of 1 KB, p50", "us", 357e-6, 120e-6, lambda: _file("read", share)),
        Bar("event", "an event to 100 extensions, p50", "ms", 10.39e-3, 3e-3, lambda: asyncio.run(_event(share))),
    ]


def _entries(share: float) -> list[Path]:
    corpus = Corpus(Path.cwd() / "corpus")
    found = [entry for package in packages_of(corpus, part="named") for entry in corpus.entries(package)]
    if not found:
        raise LookupError("the corpus is not here: `make corpus`")
    return found[:: max(1, int(len(found) / max(3, _MOST * share)))]


def _build(share: float) -> Measured:
    whole, bundling = [], []
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(Path(folder), Seal(b"benchmark"))
        for entry in _entries(share):
            reading.forget()
            try:
                started = time.perf_counter()
                build(entry, cache=cache, allow_forbidden=True)
                built = time.perf_counter()
                bundle(source(entry))
            except Problem:
                continue  # an extension that does not compile has no time
            whole.append(built - started)
            bundling.append(time.perf_counter() - built)
    return Measured(percentile(whole, 0.95), percentile(bundling, 0.95), "bundling alone (esbuild), p95 of the same")


def _scan(share: float) -> Measured:
    parsing = whole = 0.0
    size = 0
    for entry in _entries(share):
        try:
            code = compile_source(source(entry))[0].code
        except Problem:
            continue
        reading.forget()
        started = time.process_time()
        File("index.js", code, "js")
        parsed = time.process_time()
        reading.read_bundle("index.js", code)
        parsing, whole, size = parsing + parsed - started, whole + time.process_time() - parsed, size + len(code)
    return Measured(whole * _BYTES / size, parsing * _BYTES / size, "parsing alone (tree-sitter)")


def _file(tool: str, share: float) -> Measured:
    return asyncio.run(_file_call(tool, round(600 * share)))


async def _file_call(tool: str, calls: int) -> Measured:
    async with extension_corpus.with_files() as guest:
        best, _ = await stretches(lambda: guest.call_tool(tool, {"n": 4}), calls)
    subject = extensions._extension()
    await subject.load()
    engine, _ = await stretches(lambda: subject.call_tool("sync", {"n": 4}), calls)
    await subject.close()
    limited_by = "the engine: the same call with a host that answers at once"
    return Measured(percentile(best, 0.5), percentile(engine, 0.5), limited_by)


async def _event(share: float) -> Measured:
    count = max(4, round(20 * share))
    everybody, alone = [await extensions.event_times(number, count) for number in (100, 1)]
    return Measured(
        percentile(everybody, 0.5), 100 * percentile(alone, 0.5), "the engine: entering one of them, 100 times"
    )
