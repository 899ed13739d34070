"""Compile times over the corpus: cold (nothing kept) and cached, and what the parts of a build cost."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.measure import duration, percentile
from forestay.extensions import Corpus, build, packages_of
from forestay.extensions.compiler.cache import Cache
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
    ]


def _times(entries: list[Path]) -> tuple[list[float], list[float], list[int]]:
    cold, cached, sizes = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(Path(folder), Seal(b"benchmark"))
        for entry in entries:
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
