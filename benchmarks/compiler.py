"""Compile times over the corpus: cold and cached, beside the bundler alone and beside the loader of pi.

Cold means that nothing of the extension and its packages is cached. The bundler is already running, and earlier builds
have left the host's own packages joined and their declarations read.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import pi_runtime
from benchmarks.measure import duration, percentile, percentiles
from forestay.extensions import Corpus, build, packages_of
from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.bundle import bundle
from forestay.extensions.compiler.cache import Cache
from forestay.extensions.compiler.scan import reading
from forestay.extensions.compiler.scan.syntax import File
from forestay.extensions.compiler.source import source
from forestay.kernel import Problem, Seal

Row = tuple[str, str, str]
_MOST = 60
_COMMENTS = 5
_COLD = "bundling, scanning and inference; the host knows its own `typebox`"


def run() -> list[Row]:
    entries = corpus_entries()
    if not entries:
        return [("compiler: cold and cached build", "not measured", "the corpus is not here: `make corpus`")]
    times = _times(entries)
    sizes = times.sizes
    beside = f"{len(sizes)} real extensions, {min(sizes):,} to {max(sizes):,} bytes compiled"
    return [
        ("compiler: cold build, p50", duration(percentile(times.cold, 0.5)), beside),
        ("compiler: cold build, p95", duration(percentile(times.cold, 0.95)), f"goal: 150 ms; {_COLD}"),
        ("compiler: bundling alone (esbuild), p50", duration(percentile(times.bundling, 0.5)), "the same extensions"),
        ("compiler: bundling alone (esbuild), p95", duration(percentile(times.bundling, 0.95)), "the limit"),
        ("compiler: cached build, p50", duration(percentile(times.cached, 0.5)), "checks every file it was made of"),
        ("compiler: cached build, p95", duration(percentile(times.cached, 0.95)), "bar: 20 ms"),
        ("compiler: cached build, worst", duration(max(times.cached)), "bar: 20 ms"),
        *_beside_pi(),
        *_reading(entries),
    ]


def corpus_entries() -> list[Path]:
    """Return some of the real extensions, the same ones each time; none when they have not been fetched."""
    corpus = Corpus(Path.cwd() / "corpus")
    found = [entry for package in packages_of(corpus, part="named") for entry in corpus.entries(package)]
    return found[:: max(1, len(found) // _MOST)]


def _beside_pi() -> list[Row]:
    """Measure the examples of pi: we build them, and pi loads them without any check."""
    entries = pi_runtime.examples()
    what, theirs = "compiler: cold build, the examples of pi", "compiler: the same by the loader of pi 0.73.1 on Node"
    if not entries:
        return [(what, "not measured", pi_runtime.HOW_TO_GET)]
    ours = _times(entries)
    real = pi_runtime.measure(entries)
    rows = [(what, percentiles(ours.cold), f"{len(ours.cold)} extensions")]
    if isinstance(real, str):
        return [*rows, (theirs, "not measured", real)]
    first, later = real.loads[0], [took for each in real.loads[1:] for took in each]
    about = "without the start of Node and the import of pi"
    return [
        *rows,
        ("compiler: cached build, the examples of pi", percentiles(ours.cached), ""),
        (f"{theirs}, nothing cached", percentiles(first), f"it loads them as well; {about}"),
        (f"{theirs}, its cache filled", percentiles(later), about),
    ]


def _reading(entries: list[Path]) -> list[Row]:
    """Measure the processor time of reading each bundle, beside parsing alone, and of a build after a comment."""
    parsing, whole, size, again = 0.0, 0.0, 0, []
    sizes: dict[Path, int] = {}
    for entry in entries:
        try:
            code = compile_source(source(entry))[0].code
        except Problem:
            continue
        started = time.process_time()
        File("index.js", code, "js")
        parsed = time.process_time()
        reading.forget()
        reading.read_bundle("index.js", code)
        parsing, whole, size = parsing + parsed - started, whole + time.process_time() - parsed, size + len(code)
        again.append(_again(entry))
        sizes[entry] = len(code)
    per = 10_000_000 / size
    return [
        ("compiler: reading 10 MB of bundle, CPU", duration(whole * per), f"goal: 3 s; from {size:,} bytes"),
        ("compiler: the parser's own part of it, CPU", duration(parsing * per), "the limit: tree-sitter, one pass"),
        ("compiler: build again with every text read, CPU, p95", duration(percentile(again, 0.95)), "goal: 300 ms"),
        _commented(max(sizes, key=sizes.__getitem__)),
    ]


def _commented(entry: Path) -> Row:
    """Measure the wall time of a build after a comment is added to the median file, beside bundling alone."""
    built, looked_at = compile_source(source(entry))
    scripts = sorted((path for path in map(Path, looked_at) if path.suffix in (".ts", ".js")), key=_size)
    middle = scripts[len(scripts) // 2]
    before, taken, bundling = middle.read_bytes(), [], []
    try:
        for number in range(_COMMENTS):
            middle.write_bytes(before + b"\n// a comment more: %d\n" % number)
            started = time.perf_counter()
            bundle(source(entry))
            bundled = time.perf_counter()
            compile_source(source(entry))
            bundling.append(bundled - started)
            taken.append(time.perf_counter() - bundled)
    finally:
        middle.write_bytes(before)
    return (
        f"compiler: {len(built.code) / 1e6:.1f} MB of bundle in {len(scripts)} files, a comment more in one, p50",
        duration(percentile(taken, 0.5)),
        f"goal: 300 ms; bundling alone {duration(percentile(bundling, 0.5))}",
    )


def _size(path: Path) -> int:
    return path.stat().st_size


def _again(entry: Path) -> float:
    compile_source(source(entry))
    started = time.process_time()
    compile_source(source(entry))
    return time.process_time() - started


class _Times(NamedTuple):
    """Seconds of each extension's build, bundling and cached build, and its compiled bytes."""

    cold: list[float]
    bundling: list[float]
    cached: list[float]
    sizes: list[int]


def _times(entries: list[Path]) -> _Times:
    times = _Times([], [], [], [])
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(Path(folder), Seal(b"benchmark"))
        for entry in entries:
            reading.forget()
            try:
                started = time.perf_counter()
                artifact = build(entry, cache=cache, allow_forbidden=True)
                built = time.perf_counter()
                bundle(source(entry))
            except Problem:
                continue  # an extension that does not compile has no time
            bundled = time.perf_counter()
            build(entry, cache=cache, allow_forbidden=True)
            times.cached.append(time.perf_counter() - bundled)
            times.cold.append(built - started)
            times.bundling.append(bundled - built)
            times.sizes.append(len(artifact.code))
    return times
