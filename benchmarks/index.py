"""Our index beside SQLite FTS5, and beside tantivy and bm25s where they are installed, on the same facts and questions.

100,000 facts of 8 to 22 words, 30,000 words as unevenly frequent as a language's, questions of ten words, the best 300.
Each engine answers the same questions; "add" is one more fact that can be found when the call returns.
"""

from __future__ import annotations

import importlib
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from benchmarks.measure import duration, percentile
from holdfast.relay.index import Index

Row = tuple[str, str, str]
_FACTS, _QUESTIONS, _BEST, _ADDED = 100_000, 60, 300, 20


class Engine(NamedTuple):
    """`build` takes every fact; `ask` and `add` may be called any number of times afterwards."""

    name: str
    build: Callable[[Sequence[list[str]]], None]
    ask: Callable[[list[str]], Any]
    add: Callable[[list[str]], None] | None


def facts() -> tuple[list[list[str]], list[list[str]]]:
    """The facts and the questions, from a seed."""
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

    return Engine("our own", build, lambda words: index.search(dict.fromkeys(words, 1.0), _BEST), index.add)  # type: ignore[arg-type]


def fts5() -> Engine:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE facts USING fts5(text, content='', tokenize='ascii')")

    def build(every: Sequence[list[str]]) -> None:
        with database:
            database.executemany("INSERT INTO facts(text) VALUES (?)", ((" ".join(words),) for words in every))

    def ask(words: list[str]) -> Any:
        query = " OR ".join(dict.fromkeys(words))
        return database.execute(
            "SELECT rowid FROM facts WHERE facts MATCH ? ORDER BY rank LIMIT ?", (query, _BEST)
        ).fetchall()

    return Engine("SQLite FTS5", build, ask, lambda words: build([words]))


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
        return index.searcher().search(index.parse_query(" ".join(dict.fromkeys(words)), ["text"]), _BEST).hits

    return Engine(f"tantivy {_version('tantivy')}", build, ask, lambda words: build([words]))


def bm25s() -> Engine:
    package = importlib.import_module("bm25s")
    engine = package.BM25()

    def build(every: Sequence[list[str]]) -> None:
        engine.index(list(every), show_progress=False)

    return Engine(
        f"bm25s {_version('bm25s')}",
        build,
        lambda words: engine.retrieve([list(dict.fromkeys(words))], k=_BEST, show_progress=False),
        None,
    )


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


def measured(engine: Engine, every: list[list[str]], questions: list[list[str]]) -> Row:
    """CPU time of this process, so that a busy machine does not blur it; engines that use threads pay for them."""
    size = sum(len(" ".join(words)) + 1 for words in every) / 1e6
    started = time.process_time()
    engine.build(every)
    speed = size / (time.process_time() - started)
    asked = []
    for question in questions:
        started = time.process_time()
        engine.ask(question)
        asked.append(time.process_time() - started)
    added = []
    for words in every[:_ADDED] if engine.add is not None else ():
        started = time.process_time()
        engine.add(words)
        added.append(time.process_time() - started)
    p50, p95 = duration(percentile(asked, 0.5)), duration(percentile(asked, 0.95))
    one = duration(percentile(added, 0.5)) if added else "build again"
    return (
        f"index: {engine.name}, {_FACTS:,} facts",
        f"question p50 {p50}, p95 {p95}",
        f"build {speed:.1f} MB/s; add one fact {one}",
    )


def run() -> list[Row]:
    every, questions = facts()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for make in (ours, fts5, lambda: tantivy(folder), bm25s):
            try:
                engine = make()
            except ImportError as error:
                rows.append((f"index: {error.name}", "not installed", "-"))
                continue
            rows.append(measured(engine, every, questions))
    return rows
