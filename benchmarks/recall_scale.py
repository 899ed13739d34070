"""What a question costs as a session grows: p50 and p95 of a ranking, and memory for a fact beside its text.

The facts are talk and prose made from a seed: 30,000 words as unevenly frequent as a language's, lines of 6 to 20
words, forty lines under a heading with a date. Questions hold six words, one name and one month. Times are processor
time, so that a busy machine does not count.
"""

from __future__ import annotations

import random
import resource
import time
from itertools import accumulate

from benchmarks.measure import duration, percentile
from benchmarks.retrieval import Row, take
from forestay.relay import Warm, rank
from forestay.relay.ranking import Terms

_SIZES = (10_000, 100_000)
_LINES = 40
_QUESTIONS = 100
_NAMES = ("Mara", "Jonas", "Ingrid", "Tobias")
_MONTHS = ("January", "April", "May", "August", "November")


class Writer:
    """Texts and questions from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._words = [f"w{number:x}" for number in range(30_000)]
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
    before, spent = _memory(), 0.0
    for wanted in _SIZES:
        while len(warm.facts) < wanted:
            text = writer.text()
            size += len(text)
            started = time.process_time()
            take(warm, text, f"ingest:{len(warm.facts)}", 0)
            spent += time.process_time() - started
        warm.windows = 1
        used = (_memory() - before - size) / len(warm.facts)
        questions = [writer.question() for _ in range(_QUESTIONS)]
        full, bare = _asked(warm, questions, Terms()), _asked(warm, questions, Terms(neighbours=False))
        rows.append(
            (
                f"recall: a question, {wanted:,} facts",
                f"p50 {duration(percentile(full, 0.5))}, p95 {duration(percentile(full, 0.95))}",
                f"without neighbours p95 {duration(percentile(bare, 0.95))}",
            )
        )
        rows.append(
            (
                f"recall: memory, {wanted:,} facts",
                f"{used / 1000:.2f} KB for a fact beside its text",
                f"{size / 1e6:.1f} MB of text, {1e6 * spent / size:.2f} s of CPU for 1 MB",
            )
        )
    return rows


def _asked(warm: Warm, questions: list[str], terms: Terms) -> list[float]:
    times: list[float] = []
    for question in questions:
        started = time.process_time()
        rank(warm, question, terms=terms)
        times.append(time.process_time() - started)
    return times


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
