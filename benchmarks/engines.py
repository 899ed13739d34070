"""Measures other search engines; it runs in their environments, where forestay is not installed.

As a script it takes `FILE ENGINE`. FILE has a fact per line, an empty line, and a question per line, with spaces
between the words. ENGINE is `tantivy`, `bm25s` or `usearch`. It prints its figures as one JSON object.
"""

from __future__ import annotations

import importlib
import json
import resource
import sqlite3
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BEST, ADDED = 300, 20
_DIMENSIONS = 128


class Engine(NamedTuple):
    """`build` takes all facts once; `ask` and `add` can then be called any number of times."""

    build: Callable[[Sequence[list[str]]], None]
    ask: Callable[[list[str]], Any]
    add: Callable[[list[str]], Any] | None


def fts5() -> Engine:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE facts USING fts5(text, content='', tokenize='ascii')")

    def build(every: Sequence[list[str]]) -> None:
        with database:
            database.executemany("INSERT INTO facts(text) VALUES (?)", ((" ".join(words),) for words in every))

    def ask(words: list[str]) -> Any:
        query = " OR ".join(dict.fromkeys(words))
        return database.execute(
            "SELECT rowid FROM facts WHERE facts MATCH ? ORDER BY rank LIMIT ?", (query, BEST)
        ).fetchall()

    return Engine(build, ask, lambda words: build([words]))


def tantivy(folder: str) -> Engine:
    package = importlib.import_module("tantivy")
    schema = package.SchemaBuilder().add_text_field("text", tokenizer_name="whitespace").build()
    index = package.Index(schema, path=folder)
    writer = index.writer(64_000_000, 1)

    def build(every: Sequence[list[str]]) -> None:
        for words in every:
            writer.add_document(package.Document(text=" ".join(words)))
        writer.commit()
        index.reload()

    def ask(words: list[str]) -> Any:
        return index.searcher().search(index.parse_query(" ".join(dict.fromkeys(words)), ["text"]), BEST).hits

    return Engine(build, ask, lambda words: build([words]))


def bm25s() -> Engine:
    engine = importlib.import_module("bm25s").BM25()

    def build(every: Sequence[list[str]]) -> None:
        engine.index(list(every), show_progress=False)

    def ask(words: list[str]) -> Any:
        return engine.retrieve([list(dict.fromkeys(words))], k=BEST, show_progress=False)

    return Engine(build, ask, None)


def usearch() -> Engine:
    """A text's vector is the sum of its words' hashed vectors: this measures a vector index without an embedder."""
    package, numpy = importlib.import_module("usearch.index"), importlib.import_module("numpy")
    index = package.Index(ndim=_DIMENSIONS, metric="cos", dtype="f16")
    known: dict[str, Any] = {}

    def direction(word: str) -> Any:
        if word not in known:
            known[word] = numpy.random.default_rng(zlib.crc32(word.encode())).standard_normal(_DIMENSIONS, "float32")
        return known[word]

    def vector(words: list[str]) -> Any:
        return numpy.sum([direction(word) for word in words], axis=0)

    def build(every: Sequence[list[str]]) -> None:
        for words in every:
            index.add(len(index), vector(words), threads=1)

    return Engine(build, lambda words: index.search(vector(words), BEST, threads=1), lambda words: build([words]))


def figures(engine: Engine, every: list[list[str]], questions: list[list[str]]) -> dict[str, Any]:
    """Measure in processor time, so that a busy machine does not change it; threads of an engine count too."""
    size = sum(len(" ".join(words)) + 1 for words in every) / 1e6
    before, started = memory(), time.process_time()
    engine.build(every)
    spent = time.process_time() - started
    used = memory() - before
    asked = [_seconds(engine.ask, question) for question in questions]
    added = [_seconds(engine.add, words) for words in every[:ADDED]] if engine.add is not None else []
    return {"speed": size / spent, "facts": len(every) / spent, "memory": used, "asked": asked, "added": added}


def memory() -> int:
    """Return the bytes that the process holds; if the system does not tell, its peak."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def written(every: Sequence[Sequence[str]], questions: Sequence[Sequence[str]]) -> str:
    """Write facts and questions in the form that this script reads."""
    return "\n".join([*map(" ".join, every), "", *map(" ".join, questions)])


def _read(path: str) -> tuple[list[list[str]], list[list[str]]]:
    lines = [list(map(sys.intern, line.split())) for line in Path(path).read_text("utf-8").split("\n")]
    between = lines.index([])
    return lines[:between], lines[between + 1 :]


def _seconds(call: Callable[[list[str]], Any], words: list[str]) -> float:
    started = time.process_time()
    call(words)
    return time.process_time() - started


if __name__ == "__main__":
    facts, questions = _read(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        chosen = {"tantivy": lambda: tantivy(place), "bm25s": bm25s, "usearch": usearch}[sys.argv[2]]()
        print(json.dumps(figures(chosen, facts, questions)))
