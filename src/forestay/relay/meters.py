"""What a relay did since it was opened, in numbers: counted from the records that were written.

A registry of `prometheus_client` takes it as it is: `registry.register(relay.meters)`. Labels are words of the code,
never text of a caller. prometheus_client is imported when the metrics are first read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from forestay.kernel import Draft
from forestay.relay.facts import Batch

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

# Name, what it counts, and its label, if it has one.
COUNTERS: dict[str, tuple[str, str | None]] = {
    "crp_dispatches": ("Dispatches that ended, by outcome: complete, or the number of the CRP error.", "outcome"),
    "crp_windows": ("Windows completed, by whether they went on with a text.", "kind"),
    "crp_tokens": ("Tokens of completed windows.", "direction"),
    "crp_facts_extracted": ("Facts kept, by where they came from.", "source"),
    "crp_ingests": ("Texts taken in.", None),
    "crp_ingest_bytes": ("Bytes of the texts taken in.", None),
    "crp_echo_characters": ("Characters removed where windows join.", None),
    "crp_regroundings": ("Windows that got a new envelope because their chain had drifted.", None),
    "crp_facts_superseded": ("Facts that a newer one corrected.", None),
    "crp_facts_compacted": ("Facts that left the hot part of an index.", None),
    "crp_quality_gates": ("Extractions that were unlike the others.", None),
    "crp_security_events": ("Refusals and findings, by kind.", "kind"),
    "crp_sessions_opened": ("Sessions opened.", None),
}
HISTOGRAMS = {
    "crp_dispatch_seconds": "From the start of a dispatch to its end, the model's time included.",
    "crp_envelope_seconds": "Ranking and packing for one window.",
}


class Meters:
    """Counters and histograms of one relay; a collector in the sense of `prometheus_client`."""

    def __init__(self, loaded: Callable[[], tuple[int, int]] = lambda: (0, 0)) -> None:
        self._loaded = loaded
        self._counts: Counter[tuple[str, str]] = Counter()
        self._seconds = {name: _Seconds() for name in HISTOGRAMS}

    def count(self, drafts: Iterable[Draft]) -> None:
        """Count what was written."""
        for draft in drafts:
            for name, label, amount in _counted(draft.type, draft.payload):
                self._counts[name, label] += amount

    def took(self, name: str, seconds: float) -> None:
        self._seconds[name].add(seconds)

    def value(self, name: str, label: str = "") -> int:
        return self._counts[name, label]

    def collect(self) -> Iterator[Any]:
        """The families, for a registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for name, (text, label) in COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=[label] if label else None)
            known = {key: count for (own, key), count in self._counts.items() if own == name}
            for key, count in sorted(known.items() if label else [("", known.get("", 0))]):
                family.add_metric([key] if label else [], count)
            yield family
        for name, text in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(name, text)
            histogram.add_metric([], *self._seconds[name].shown())
            yield histogram
        sessions, facts = self._loaded()
        yield GaugeMetricFamily("crp_sessions_loaded", "Sessions in memory.", sessions)
        yield GaugeMetricFamily("crp_facts_loaded", "Facts in memory.", facts)


class _Seconds:
    def __init__(self) -> None:
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        self._buckets[bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds

    def shown(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative buckets and the sum."""
        total, found = 0, []
        for edge, count in zip((*map(str, BUCKETS), "+Inf"), self._buckets, strict=True):
            total += count
            found.append((edge, float(total)))
        return found, self._sum


def _counted(type: str, payload: Any) -> Iterator[tuple[str, str, int]]:
    """What one record adds to which counter."""
    match type.removeprefix("crp."):
        case "window.complete":
            yield "crp_windows", "continuation" if payload["continuation"] else "first", 1
            yield "crp_tokens", "input", payload["input_tokens"]
            yield "crp_tokens", "output", payload["output_tokens"]
            yield "crp_echo_characters", "", payload["removed"]
        case "extraction.complete":
            batch: Batch = payload
            kind = batch.source.partition(":")[0]
            yield "crp_facts_extracted", kind, len(batch.rows)
        case "ingest.complete":
            yield "crp_ingests", "", 1
            yield "crp_ingest_bytes", "", payload["bytes"]
        case "dispatch.complete":
            yield "crp_dispatches", "complete", 1
        case "dispatch.error":
            yield "crp_dispatches", str(payload["code"]), 1
        case "dispatch.continuation":
            yield "crp_regroundings", "", int(payload["reground"])
        case "facts.superseded":
            yield "crp_facts_superseded", "", len(payload["pairs"])
        case "facts.compacted":
            yield "crp_facts_compacted", "", len(payload["folded"]) + len(payload["archived"])
        case "extraction.quality_gate":
            yield "crp_quality_gates", "", 1
        case "session.init":
            yield "crp_sessions_opened", "", 1
        case name if name.startswith("security."):
            yield "crp_security_events", name.removeprefix("security."), 1
        case _:
            pass
