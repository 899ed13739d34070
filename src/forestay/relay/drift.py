"""Detects problems: a chain of windows that drifts, and an extraction that differs from the others.

Neither stops a dispatch. A chain that drifts gets a new envelope for the text that was just written (CRP §1.4: at a
degradation of 0.15, three windows apart). An unusual extraction is recorded in an audit event (CRP §1.5).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from forestay.relay.facts import Batch

REGROUND_AT = 0.15
WINDOWS_BETWEEN = 3
_TOO_MANY = 5.0  # times the typical rate
_LEAST_SAMPLES = 5
_LEAST_BYTES = 200


def of_window(new: int, total: int, corrected: int, novelty: float, before: float) -> float:
    """Return the degradation of one window: 0.5 (1 - yield) + 0.3 (0.5 supersession) + 0.2 flow decline.

    Yield is the share of its facts that are new in the chain. Supersession is the share that contradicts the chain.
    Flow decline compares its new word triples with those of the window before it. A window without a fact (the middle
    of a code block) says nothing about its yield.
    """
    gained = new / total if total else 1.0
    against = min(1.0, corrected / total) if total else 0.0
    decline = max(0.0, 1.0 - novelty / before) if before > 0 else 0.0
    return 0.5 * (1.0 - gained) + 0.3 * (0.5 * against) + 0.2 * decline


def of_chain(so_far: float, window: float) -> float:
    """Return the degradation of a chain: 1 - the product of what each window kept."""
    return 1.0 - (1.0 - so_far) * (1.0 - window)


def reground(chain: float, windows: int) -> bool:
    """Whether the next window gets a new envelope; the current one is `windows` windows old."""
    return chain >= REGROUND_AT and windows >= WINDOWS_BETWEEN


def rate(batch: Batch) -> float:
    """Return the facts per thousand bytes; 0 when the text is too short for a rate."""
    size = batch.rows[-1][1] - batch.rows[0][0] if batch.rows and batch.texts is None else 0
    return 1000 * len(batch.rows) / size if size >= _LEAST_BYTES else 0.0


def gate(batch: Batch, rates: Collection[float]) -> dict[str, float | int | str] | None:
    """Describe how an extraction differs from the session's earlier ones; None when it does not."""
    found, typical = rate(batch), _median(sorted(rates))
    if len(rates) < _LEAST_SAMPLES or found <= _TOO_MANY * typical:
        return None
    return {
        "reason": "count",
        "source": batch.source,
        "first": batch.first,
        "count": len(batch.rows),
        "per_kilobyte": round(found, 3),
        "typical": round(typical, 3),
    }


def _median(values: Sequence[float]) -> float:
    return values[len(values) // 2] if values else 0.0
