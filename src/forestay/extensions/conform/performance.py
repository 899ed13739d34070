"""The performance harness (Pi §7): measures cold load, warm load and event dispatch over the corpus against budgets.

Cold: an artifact from the cache, a fresh VM. Warm: a VM in which this extension was loaded before. Dispatch: one event
to one loaded extension. The times hold for this machine and this run; the report gives the number of samples.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from forestay.extensions.compiler.artifact import Artifact
from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.source import sources
from forestay.extensions.conform.corpus import Corpus
from forestay.extensions.conform.host import Host, Place
from forestay.extensions.conform.run import packages_of
from forestay.extensions.engine.pool import Pool
from forestay.extensions.hooks import Hooks
from forestay.kernel import Problem, canonical

_EVENT = {"type": "session_start", "reason": "startup"}
_DISPATCHES = 50
_WORSE, _NOISE_MS = 1.25, 0.25
SCHEMA = "forestay.bench.v1"


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An upper limit: the measure, the percentile and the milliseconds."""

    name: str
    measure: Literal["cold", "warm", "dispatch"]
    percentile: Annotated[int, msgspec.Meta(ge=1, le=99)]
    budget_ms: Annotated[float, msgspec.Meta(gt=0)]


class Report(msgspec.Struct, frozen=True):
    """The part of an earlier report that is compared: measure to percentile to milliseconds."""

    schema: Literal["forestay.bench.v1"]
    milliseconds: dict[str, dict[str, float]]


BUDGETS = (
    Budget("cold load P95", "cold", 95, 200.0),
    Budget("cold load per extension P99", "cold", 99, 100.0),
    Budget("warm load P95", "warm", 95, 100.0),
    Budget("warm load per extension P99", "warm", 99, 100.0),
    Budget("event dispatch P99", "dispatch", 99, 5.0),
)


def read_budgets(path: Path | None) -> tuple[Budget, ...]:
    """Read the budgets from a file; without one, return the contract's budgets."""
    if path is None:
        return BUDGETS
    return canonical.decode(_bytes(path), tuple[Budget, ...])


def read_report(path: Path) -> Report:
    """Read an earlier report of `ext bench`."""
    return canonical.decode(_bytes(path), Report)


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise Problem("not_found", f"There is no {path.name}.", fix="Name a file that is there.")
    return path.read_bytes()


def regressions(before: Report, now: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the figures that grew by more than noise: by a quarter, and by at least a quarter of a millisecond."""
    found = []
    for name, figures in now["milliseconds"].items():
        for share, value in figures.items():
            old = before.milliseconds.get(name, {}).get(share)
            if old is not None and value > old * _WORSE and value - old >= _NOISE_MS:
                found.append({"name": f"{name} {share}", "before_ms": old, "now_ms": value})
    return found


def corpus_entries(folder: Path) -> list[Path]:
    """Return every fetched entry of the corpus."""
    corpus = Corpus(folder)
    return [entry for package in packages_of(corpus, part="named") for entry in corpus.entries(package)]


async def measure(entries: list[Path], most: int, budgets: tuple[Budget, ...]) -> dict[str, Any]:
    """Measure at most `most` of these extensions, spread evenly over the list; skip those that do not load."""
    step = max(1, len(entries) // most)
    samples: dict[str, list[float]] = {"cold": [], "warm": [], "dispatch": []}
    measured = 0
    with tempfile.TemporaryDirectory(prefix="forestay-bench-") as work:
        pool = Pool()
        for index, entry in enumerate(entries[::step][:most]):
            try:
                artifact, _ = compile_source(sources(entry)[0])
                await _one(Place(Path(work) / str(index)), artifact, pool, samples)
                measured += 1
            except Problem:
                continue  # the conformance report covers what does not load
    if not measured:
        raise Problem("not_found", "None of these extensions loads.", fix="Run `make corpus`, or name a folder.")
    return {
        "schema": SCHEMA,
        "extensions": measured,
        "samples": {name: len(values) for name, values in samples.items()},
        "milliseconds": {name: _summary(values) for name, values in samples.items()},
        "budgets": [_held(budget, samples[budget.measure]) for budget in budgets],
    }


async def _one(place: Place, artifact: Artifact, pool: Pool, samples: dict[str, list[float]]) -> None:
    async with Host(place, artifact, pool=pool) as host:
        samples["cold"].append(await _timed(host.extension.load))
        hooks = Hooks([host.extension])
        for _ in range(_DISPATCHES):
            samples["dispatch"].append(await _timed(lambda: hooks.emit(dict(_EVENT))))
    async with Host(place, artifact, pool=pool) as host:
        samples["warm"].append(await _timed(host.extension.load))


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1000


def percentile(values: list[float], share: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)]


def _summary(values: list[float]) -> dict[str, float]:
    return {f"p{share}": round(percentile(values, share), 3) for share in (50, 95, 99)}


def _held(budget: Budget, values: list[float]) -> dict[str, Any]:
    found = percentile(values, budget.percentile)
    return {
        "name": budget.name,
        "measured_ms": round(found, 3),
        "budget_ms": budget.budget_ms,
        "held": found <= budget.budget_ms,
    }
