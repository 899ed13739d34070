"""Compile times over the corpus: cold (nothing kept) and cached, and what the parts of a build cost."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks import large_build
from benchmarks.measure import duration, percentile
from forestay.extensions import Corpus, build, packages_of
from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.cache import Cache
from forestay.extensions.compiler.scan import reading
from forestay.extensions.compiler.scan.syntax import File
from forestay.extensions.compiler.source import source
from forestay.kernel import Problem, Seal

Row = tuple[str, str, str]
_MOST = 60


def run() -> list[Row]:
    corpus = Corpus(Path.cwd() / "corpus")
    entries = [entry for package in packages_of(corpus, part="named") for entry in corpus.entries(package)]
    if not entries:
        return [("compiler: cold and cached build", "not measured", "the corpus is not here: `make corpus`")]
    cold, cached, sizes = _times(entries[:: max(1, len(entries) // _MOST)])
    beside = f"{len(cold)} real extensions, {min(sizes):,} to {max(sizes):,} bytes compiled"
    return [
        ("compiler: cold build, p50", duration(percentile(cold, 0.5)), beside),
        ("compiler: cold build, p95", duration(percentile(cold, 0.95)), "bundling, scanning and inference"),
        ("compiler: cached build, p50", duration(percentile(cached, 0.5)), "checks every file that it was made of"),
        ("compiler: cached build, p95", duration(percentile(cached, 0.95)), "bar: 20 ms"),
        ("compiler: cached build, worst", duration(max(cached)), "bar: 20 ms"),
        *_reading(entries),
        *_large(entries),
    ]


def _reading(entries: list[Path]) -> list[Row]:
    """What reading costs the processor: each bundle as a whole, beside parsing alone, and a comment more."""
    parsing, whole, size, again = 0.0, 0.0, 0, []
    for entry in entries[:: max(1, len(entries) // _MOST)]:
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
    per = 10_000_000 / size
    return [
        ("compiler: reading 10 MB of bundle, CPU", duration(whole * per), f"goal: 3 s; from {size:,} bytes"),
        ("compiler: the parser's own part of it, CPU", duration(parsing * per), "the limit: tree-sitter, one pass"),
        ("compiler: build again with every text read, CPU, p95", duration(percentile(again, 0.95)), "goal: 300 ms"),
    ]


def _large(entries: list[Path]) -> list[Row]:
    """One extension of ten million bytes. What declares a name that a bundle declares is left out."""
    bundles = []
    for entry in entries[:: max(1, len(entries) // _MOST)]:
        with suppress(Problem):
            bundles.append(compile_source(source(entry))[0].code)
    with tempfile.TemporaryDirectory() as folder:
        plain = [code for code in bundles if b"__dirname" not in code and b"__filename" not in code]
        return large_build.rows(plain, Path(folder))


def _again(entry: Path) -> float:
    compile_source(source(entry))
    started = time.process_time()
    compile_source(source(entry))
    return time.process_time() - started


def _times(entries: list[Path]) -> tuple[list[float], list[float], list[int]]:
    cold, cached, sizes = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(Path(folder), Seal(b"benchmark"))
        for entry in entries:
            reading.forget()
            try:
                started = time.perf_counter()
                artifact = build(entry, cache=cache, allow_forbidden=True)
                cold.append(time.perf_counter() - started)
            except Problem:
                continue  # what does not compile has no time
            started = time.perf_counter()
            build(entry, cache=cache, allow_forbidden=True)
            cached.append(time.perf_counter() - started)
            sizes.append(len(artifact.code))
    return cold, cached, sizes
