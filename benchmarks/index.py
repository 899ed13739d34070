"""Our index beside SQLite FTS5, tantivy and bm25s, on the same facts and questions.

There are 100,000 facts of 8 to 22 words. The 30,000 words have the frequencies of a natural language. Questions have
ten words and get the best 300 facts. Each engine answers the same questions; "add" is one more fact that can be found
when the call returns. tantivy and bm25s each run in their own environment, made from its lock.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks import alternatives, engines
from benchmarks.engines import BEST, Engine
from benchmarks.measure import duration, percentile
from forestay.relay.index import Index

Row = tuple[str, str, str]
THEIRS = ("tantivy-0.27.0", "bm25s-0.3.16")
_FACTS, _QUESTIONS = 100_000, 60


def facts() -> tuple[list[list[str]], list[list[str]]]:
    """Return facts and questions, made from a seed."""
    rng = random.Random(5)
    vocabulary = [f"w{number:x}" for number in range(30_000)]
    weights = list(accumulate(1 / (place + 1) for place in range(len(vocabulary))))
    made = [rng.choices(vocabulary, cum_weights=weights, k=rng.randint(8, 22)) for _ in range(_FACTS)]
    return made, [rng.choices(vocabulary, cum_weights=weights, k=10) for _ in range(_QUESTIONS)]


def ours() -> Engine:
    index = Index()

    def build(every: Sequence[list[str]]) -> None:
        for words in every:
            index.add(words)

    return Engine(build, lambda words: index.search(dict.fromkeys(words, 1.0), BEST), index.add)


def shown(name: str, found: dict[str, Any]) -> Row:
    if "error" in found:
        return f"index: {name}", "it failed", found["error"]
    p50, p95 = (duration(percentile(found["asked"], share)) for share in (0.5, 0.95))
    one = duration(percentile(found["added"], 0.5)) if found["added"] else "build again"
    return (
        f"index: {name}, {_FACTS:,} facts",
        f"question p50 {p50}, p95 {p95}",
        f"build {found['speed']:.1f} MB/s; add one fact {one}",
    )


def run() -> list[Row]:
    every, questions = facts()
    rows = [
        shown("our own", engines.figures(ours(), every, questions)),
        shown("SQLite FTS5", engines.figures(engines.fts5(), every, questions)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "facts.txt"
        given.write_text(engines.written(every, questions), "utf-8")
        script = Path(engines.__file__).read_text("utf-8")
        for name in THEIRS:
            found = alternatives.measure(name, script, str(given), name.partition("-")[0])
            rows.append(shown(name.replace("-", " "), found))
    return rows
