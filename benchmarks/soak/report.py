"""Writes a soak as a table: a row for each equal part of its time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.measure import percentile
from benchmarks.soak.verdict import Sample, Soak, faults, slope


def table(soak: Soak, part: str = "minute", length: float = 60.0) -> list[str]:
    """Return operations, errors, memory and files by `part`, and p50 and p99 of each kind in milliseconds. Operations
    that met a restart have their own column: their number, and the seconds of the longest."""
    head = [part, "operations", "errors", "met a restart", "RSS MiB", "own MiB", "open files", "ledger MiB", "log MiB"]
    kinds = soak.kinds
    lines = [f"| {' | '.join([*head, *(f'{kind} p50/p99 ms' for kind in kinds)])} |"]
    lines.append("|---" * (len(head) + len(kinds)) + "|")
    parts = max(1, round(soak.seconds / length))
    length = soak.seconds / parts
    for number in range(parts):
        low, high = soak.began + number * length, soak.began + (number + 1) * length
        done = [item for item in soak.done if low <= item.due < high]
        met = [item.seconds for item in done if soak.met(item)]
        held = [item for item in soak.samples if low <= item.at < high]
        cells = [
            str(number + 1),
            f"{len(done):,}",
            str(sum(item.error is not None for item in done)),
            f"{len(met)} ({max(met):.1f} s)" if met else "",
            *_sizes(held[-1] if held else None),
            *(_cell([item.seconds for item in done if item.kind == kind and not soak.met(item)]) for kind in kinds),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _sizes(sample: Sample | None) -> list[str]:
    if sample is None:
        return ["-"] * 5
    memory = [f"{sample.resident:.0f}", f"{sample.private:.0f}"]
    return [*memory, str(sample.files), f"{sample.ledger:.1f}", f"{sample.log:.1f}"]


def findings(soak: Soak) -> list[str]:
    """Return the lines under the table: restarts, memory, ledger and the verdict."""
    found = faults(soak)
    return [
        *(_restarts(soak) if soak.restarts else ()),
        f"- memory within a life of the host: {slope(soak.samples):+.3f} MiB a minute ({soak.slope_mib:g} allowed)",
        f"- ledger: {soak.records:,} records, {'verified' if soak.ledger_ok else 'NOT verified'}",
        f"- verdict: {'holds' if not found else 'fails'}",
        *(f"    - {item}" for item in found),
    ]


def _restarts(soak: Soak) -> Sequence[str]:
    told = ", ".join(f"{count} {how}" for how, count in Counter(away.how for away in soak.restarts).items())
    longest = max(away.seconds for away in soak.restarts)
    met = [item for item in soak.done if soak.met(item)]
    again = sum(item.repeats > 0 for item in met)
    return [
        f"- restarts: {told}, away for at most {longest:.1f} s; {len(met)} operations met one, and {again} of them "
        "were asked for again"
    ]


def _cell(seconds: list[float]) -> str:
    return f"{percentile(seconds, 0.5) * 1000:.0f} / {percentile(seconds, 0.99) * 1000:.0f}" if seconds else "-"
