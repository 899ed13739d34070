"""The other search engines and how each is measured; it runs in their environments, where forestay is not installed.

As a script, `FILE ENGINE`: facts and questions as JSON, one of `tantivy` and `bm25s`; the figures are one JSON object.
"""

from __future__ import annotations

import importlib
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BEST, ADDED = 300, 20


class Engine(NamedTuple):
    """`build` takes every fact; `ask` and `add` may be called any number of times afterwards."""

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


def figures(engine: Engine, every: list[list[str]], questions: list[list[str]]) -> dict[str, Any]:
    """CPU seconds of the process, so that a busy machine does not blur them; engines that use threads pay for them."""
    size = sum(len(" ".join(words)) + 1 for words in every) / 1e6
    started = time.process_time()
    engine.build(every)
    speed = size / (time.process_time() - started)
    asked = [_seconds(engine.ask, question) for question in questions]
    added = [_seconds(engine.add, words) for words in every[:ADDED]] if engine.add is not None else []
    return {"speed": speed, "asked": asked, "added": added}


def _seconds(call: Callable[[list[str]], Any], words: list[str]) -> float:
    started = time.process_time()
    call(words)
    return time.process_time() - started


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    with tempfile.TemporaryDirectory() as place:
        chosen = tantivy(place) if sys.argv[2] == "tantivy" else bm25s()
        print(json.dumps(figures(chosen, given["facts"], given["questions"])))
