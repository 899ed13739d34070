"""The cost of a growing session: questions, memory per fact, ingest, resume; beside other engines.

The facts are talk and prose made from a seed: 30,000 words with the frequencies of a natural language, lines of 6 to 20
words, forty lines under a heading with a date. Every third word is English, so that synonyms and related words find
something. Questions have six words, one name and one month. Times are processor time, so that a busy machine has little
effect, and a question's time is the best of three. `FORESTAY_BENCH_FACTS` takes other sizes, separated by commas.

tantivy, bm25s and usearch get the same lines and questions, already split into words. They answer with the best 300 by
BM25, or by the similarity of vectors alone: they keep no records, no signatures, no headings and no neighbours.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
import tempfile
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks import alternatives, engines
from benchmarks.engines import memory
from benchmarks.measure import duration, percentile
from benchmarks.retrieval import Row, take
from forestay import models
from forestay.relay import Relay, Warm, rank
from forestay.relay.facts import batches
from forestay.relay.ranking import Terms

_SIZES = os.environ.get("FORESTAY_BENCH_FACTS", "10000,100000,1000000")
_THEIRS = ("tantivy-0.27.0", "bm25s-0.3.16", "usearch-2.26.6")
_LONGEST = 3600.0  # seconds for one engine
_LINES = 40
_QUESTIONS = 100
_TIMES = 3
_NAMES = ("Mara", "Jonas", "Ingrid", "Tobias")
_SYLLABLES = ("bcdfghklmnprstvw", "aeiou", "bdgklmnprst", "aeiou", "klmnrst")
_ENGLISH = Path(models.__file__).with_name("related_words.txt")
_MONTHS = ("January", "April", "May", "August", "November")


class Writer:
    """Writes texts and questions from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        made = ["".join(letters) for letters in itertools.islice(itertools.product(*_SYLLABLES), 30_000)]
        english = [line.partition(" ")[0] for line in _ENGLISH.read_text("utf-8").splitlines()[1:]]
        self._rng.shuffle(made)
        self._rng.shuffle(english)
        for place, word in zip(range(0, len(made), 3), english, strict=False):
            made[place] = word
        self._words = made
        self._weights = list(accumulate(1 / (place + 1) for place in range(len(self._words))))

    def _some(self, count: int) -> str:
        return " ".join(self._rng.choices(self._words, cum_weights=self._weights, k=count))

    def text(self) -> str:
        day = f"# {self._rng.randint(1, 28)} {self._rng.choice(_MONTHS)} 2025\n\n"
        said = [self._some(self._rng.randint(6, 20)) for _ in range(_LINES)]
        if self._rng.random() < 0.5:
            return day + "".join(f"{self._rng.choice(_NAMES)}: {line}.\n" for line in said)
        return day + " ".join(f"The {line}." for line in said) + "\n"

    def question(self) -> str:
        return f"What did {self._rng.choice(_NAMES)} say of {self._some(6)} in {self._rng.choice(_MONTHS)}?"


def run() -> list[Row]:
    rows: list[Row] = []
    writer, warm, size = Writer(11), Warm(), 0
    _load_tables()
    used, spent = 0, 0.0
    for wanted in map(int, _SIZES.split(",")):
        before = memory()
        while len(warm.facts) < wanted:
            text = writer.text()
            size += len(text)
            started = time.process_time()
            take(warm, text, f"ingest:{len(warm.facts)}", 0)
            spent += time.process_time() - started
        warm.windows = 1
        questions = [writer.question() for _ in range(_QUESTIONS)]
        full = _asked(warm, questions, Terms())
        for signal in ("neighbours", "synonyms", "related", "gist", "dates"):
            without = _asked(warm, questions, Terms(**{signal: False}))
            rows.append((f"recall: a question without {signal}, {wanted:,} facts", _shown(without), _shown(full)))
        used += memory() - before  # includes what the questions allocated, but not the measurements below
        beside = (used - size) / len(warm.facts)
        rows.append((f"recall: a question, {wanted:,} facts", _shown(full), "all signals"))
        rows.append(
            (
                f"recall: ingest, {wanted:,} facts",
                f"{len(warm.facts) / spent:,.0f} facts a second, {beside / 1000:.2f} KB for a fact beside its text",
                f"{size / 1e6:.1f} MB of text, {1e6 * spent / size:.2f} s of CPU for 1 MB",
            )
        )
        kept, folded = asyncio.run(_resumed(wanted))
        anew = f"without its snapshot {duration(folded)}"
        rows.append((f"recall: resume and first question, {wanted:,} facts", duration(kept), anew))
        rows += _beside(warm, questions, wanted)
    return rows


def _load_tables() -> None:
    """Load the tables that all sessions of a process share, before anything is measured."""
    small, writer = Warm(), Writer(12)
    take(small, writer.text(), "ingest:small", 0)
    rank(small, writer.question())


async def _resumed(wanted: int) -> tuple[float, float]:
    """Return the processor time of resuming a session and a first question: from its snapshot, and folded anew."""
    with tempfile.TemporaryDirectory() as folder:
        path, writer = Path(folder) / "scale.db", Writer(11)
        async with Relay.open(path) as relay:
            session = await relay.init("scale")
            while (first := len(session.warm.facts)) < wanted:
                made = batches(
                    writer.text(),
                    f"ingest:{first}",
                    window=0,
                    first=first,
                    key=session.key,
                    parent=session.warm.parent,
                )
                session.stage_facts(made)
                await session.flush()
        times = []
        for options in ({}, {"snapshots": None}):
            async with Relay.open(path, **options) as relay:
                started = time.process_time()
                rank((await relay.session(session.id)).warm, writer.question())
                times.append(time.process_time() - started)
        return times[0], times[1]


def _beside(warm: Warm, questions: list[str], wanted: int) -> list[Row]:
    """Measure the other engines on the same lines."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "facts.txt"
        split = [[word.strip(".,:?").lower() for word in text.split()] for text in questions]
        given.write_text(engines.written([fact.text.lower().split() for fact in warm.facts], split), "utf-8")
        script = Path(engines.__file__).read_text("utf-8")
        for name in _THEIRS:
            found = alternatives.measure(name, script, str(given), name.partition("-")[0], timeout=_LONGEST)
            rows.append(_row(name.replace("-", " "), found, wanted))
    return rows


def _row(name: str, found: dict[str, Any], wanted: int) -> Row:
    if "error" in found:
        return f"recall: {name}, {wanted:,} facts", "it failed", found["error"]
    cost = f"{found['facts']:,.0f} facts a second, {found['memory'] / 1000 / wanted:.2f} KB for a fact"
    return f"recall: {name}, {wanted:,} facts", _shown(found["asked"]), cost


def _shown(times: list[float]) -> str:
    return f"p50 {duration(percentile(times, 0.5))}, p95 {duration(percentile(times, 0.95))}"


def _asked(warm: Warm, questions: list[str], terms: Terms) -> list[float]:
    times: list[float] = []
    for question in questions:
        best = math.inf
        for _ in range(_TIMES):
            started = time.process_time()
            rank(warm, question, terms=terms)
            best = min(best, time.process_time() - started)
        times.append(best)
    return times
