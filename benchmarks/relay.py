"""The relay beside `crprotocol` 2.0.0 and 6.2.5: import, dispatch overhead, ingest, envelope, memory, resume.

Overhead is the time of a whole `dispatch` with a model that answers immediately: validation, ranking, packing, two
durable appends to the ledger, extraction, report. The alternatives have a time limit; a row says when they exceed it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import alternatives
from benchmarks.measure import duration, percentiles, stretches
from forestay.models import DEFAULT_PARAMS, Delta, Message, Params, ToolSpec, Usage
from forestay.relay import Relay

Row = tuple[str, str, str]
SIZES = (0, 1_000, 10_000, 100_000)
THEIRS = ("crprotocol-2.0.0", "crprotocol-6.2.5")
_LIMIT = 40.0
_DISPATCHES = 60
_BARS = {10_000: "bar: p95 5 ms; ", 100_000: "bar: p95 25 ms; "}


class Instant:
    """A model that answers immediately."""

    name = "instant"
    context_window = 8192
    max_output_tokens: int | None = None

    def count_tokens(self, text: str) -> int:
        return (len(text) + 3) // 4

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> AsyncIterator[Delta]:
        yield Delta("Hello, the answer is 42.")
        yield Delta(finish_reason="stop", usage=Usage(10, 7))


class Text:
    """Text with the word frequencies of a natural language, from a seed."""

    def __init__(self) -> None:
        self._random = random.Random(11)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = ["".join(self._random.choices(letters, k=self._random.randint(3, 9))) for _ in range(20_000)]
        self._weights = list(itertools.accumulate(1 / (rank + 1) ** 0.9 for rank in range(len(self._words))))

    def words(self, count: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=count))

    def document(self, sentences: int) -> str:
        """Return paragraphs of five sentences; every fifth sentence ends with a quantity."""
        parts = [self.words(14).capitalize() + (". " if n % 5 else f" {n} GB.\n\n") for n in range(sentences)]
        return "".join(parts)


def run() -> list[Row]:
    text = Text()
    rows = [_import()]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        sample = folder / "sample.txt"
        sample.write_text(
            "\n\n".join(f"Basin {n} holds {n * 7 % 97} boats. It is {n % 30} m deep." for n in range(500)), "utf-8"
        )
        found = {name: _theirs(name, sample) for name in THEIRS}
        rows.append(asyncio.run(_hello(folder, found)))
        for size in SIZES:
            rows += asyncio.run(_size(folder, text, size, found))
        rows.append(_memory(text))
    return rows


def _import() -> Row:
    def seconds(python: str, module: str) -> float:
        script = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        runs = [subprocess.run([python, "-c", script], capture_output=True, text=True, check=True) for _ in range(3)]
        return min(float(done.stdout.split()[-1]) for done in runs)

    mine = seconds(sys.executable, "forestay.relay")
    beside = []
    for name in THEIRS:
        theirs = seconds(str(alternatives.python_of(name)), "crp")
        beside.append(f"{name}: {duration(theirs)}")
    return "relay: import", duration(mine), "; ".join(beside)


async def _hello(folder: Path, found: dict[str, dict[str, Any]]) -> Row:
    calls = 0

    class Counted(Instant):
        def stream(self, *arguments: Any, **options: Any) -> AsyncIterator[Delta]:
            nonlocal calls
            calls += 1
            return super().stream(*arguments, **options)

    async with Relay.open(folder / "hello.db", model=Counted()) as relay:
        reply = await relay.dispatch("You are brief.", "Say hello.")
    beside = "; ".join(f"{name}: {_told(result, 'calls', lambda v: f'{v} calls')}" for name, result in found.items())
    unchanged = "; ".join(f"{name}: {result.get('unchanged', '-')}" for name, result in found.items())
    return (
        "relay: model calls to say hello",
        f"{calls}, output unchanged: {reply.output == 'Hello, the answer is 42.'}",
        f"{beside}; unchanged: {unchanged}",
    )


async def _size(folder: Path, text: Text, size: int, found: dict[str, dict[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    path = folder / f"{size}.db"
    document = text.document(size)
    async with Relay.open(path, model=Instant()) as relay:
        session = await relay.init("bench", config={"dispatches_per_minute": 10**6, "ingest_bytes_per_minute": 10**9})
        if size:
            started = time.perf_counter()
            await session.ingest(document, "document")
            speed = len(document.encode()) / 1e6 / (time.perf_counter() - started)
            if size == max(SIZES):
                beside = "; ".join(
                    f"{n}: {_told(r, 'ingest', lambda v: f'{v:.3f} MB/s')} of {r.get('bytes', 0) / 1e3:.0f} kB"
                    for n, r in found.items()
                )
                rows.append(
                    (
                        f"relay: ingest, {len(document) / 1e6:.1f} MB, {len(session.warm.facts):,} facts",
                        f"{speed:.2f} MB/s",
                        beside,
                    )
                )

        def task() -> str:
            return f"What is the state of {text.words(8)}?"

        envelopes = await stretches(lambda: session.preview_envelope("You are brief.", task()), _DISPATCHES)
        dispatches = await stretches(lambda: session.dispatch("You are brief.", task()), _DISPATCHES)
    beside = ""
    if size == 0:
        beside = "; ".join(f"{name}: {_told(result, 'hello', duration)}" for name, result in found.items())
    elif size == 1_000:
        beside = "; ".join(
            f"{name}: {_told(result, 'dispatch', duration)} with the {result.get('facts', '?')} facts it kept of 1,000"
            for name, result in found.items()
        )
    rows.append(
        (
            f"relay: dispatch overhead, {size:,} facts",
            percentiles(dispatches[0], 0.5, 0.95),
            f"{_BARS.get(size, '')}all: {percentiles(dispatches[1], 0.5, 0.95)}" + (f"; {beside}" if beside else ""),
        )
    )
    if size:
        rows.append(
            (
                f"relay: envelope, {size:,} facts",
                percentiles(envelopes[0], 0.5, 0.95),
                f"all: {percentiles(envelopes[1], 0.5, 0.95)}",
            )
        )
        started = time.perf_counter()
        async with Relay.open(path, model=Instant()) as relay:
            await relay.session(session.id)
            rows.append((f"relay: resume, {size:,} facts", duration(time.perf_counter() - started), ""))
    return rows


def _memory(text: Text) -> Row:
    """Measure the memory of 10,000 facts with their index, by the allocator's own count."""
    from forestay.relay import Warm
    from forestay.relay.facts import GENESIS, batches

    document = text.document(10_000)
    made = list(batches(document, "ingest:x", window=0, first=0, key=b"x" * 32, parent=GENESIS))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    warm = Warm()
    for batch in made:
        warm.apply("crp.extraction.complete", batch)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (
        "relay: memory of 10,000 facts",
        f"{(after - before) / 1e6:.1f} MB",
        f"their text alone: {len(document) / 1e6:.1f} MB",
    )


_SCRIPT = """
import json, logging, sys, time
logging.disable(logging.CRITICAL)
import crp
from crp.providers.base import LLMProvider

class Hello(LLMProvider):
    calls = 0
    def generate_chat(self, messages, **options):
        Hello.calls += 1
        return "Hello, the answer is 42.", "stop"
    def count_tokens(self, text):
        return (len(text) + 3) // 4
    def context_window_size(self):
        return 8192

client = crp.Client(provider=Hello())
result = {}
if sys.argv[2] == "hello":
    started = time.perf_counter()
    found = client.dispatch("You are brief.", "Say hello.")
    result = {"hello": time.perf_counter() - started, "calls": Hello.calls}
    output = found[0] if isinstance(found, tuple) else getattr(found, "output", "")
    result["unchanged"] = output == "Hello, the answer is 42."
else:
    text = open(sys.argv[1], encoding="utf-8").read()
    started = time.perf_counter()
    kept = client.ingest(text, "document")
    result = {"ingest": len(text) / 1e6 / (time.perf_counter() - started), "bytes": len(text)}
    result["facts"] = getattr(kept, "facts_extracted", None)
    if sys.argv[2] == "dispatch":
        started = time.perf_counter()
        client.dispatch("You are brief.", "How deep is basin 31?")
        result["dispatch"] = time.perf_counter() - started
print(json.dumps(result))
"""


def _theirs(name: str, sample: Path) -> dict[str, Any]:
    """Measure the alternative: each part in its own process, within the time limit."""
    found: dict[str, Any] = {}
    for part in ("hello", "ingest", "dispatch"):
        try:
            result = alternatives.measure(name, _SCRIPT, str(sample), part, timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            found[f"{part} took"] = f"more than {_LIMIT:.0f} s"
            continue
        except json.JSONDecodeError:
            continue
        found.update({key: value for key, value in result.items() if key not in found})
    return found


def _told(result: dict[str, Any], key: str, show: Any) -> str:
    if key in result:
        return str(show(result[key]))
    limit = {"calls": "hello", "hello": "hello", "ingest": "ingest", "dispatch": "dispatch"}[key]
    return str(result.get(f"{limit} took", result.get("error", "it failed")))
