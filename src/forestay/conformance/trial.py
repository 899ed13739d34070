"""Tries one scenario: its outcome, and how long it took."""

from __future__ import annotations

from typing import Any

from forestay.conformance.report import Outcome, Result
from forestay.conformance.scenario import Failed, NotApplicable, Scenario
from forestay.kernel import Clock


def tried(target: Any, item: Scenario, clock: Clock, *, strict: bool = False) -> Result:
    """Try a host or a sidecar (N1). With `strict`, a scenario that is not applicable fails (N2)."""
    began = clock.monotonic()
    outcome: Outcome = "pass"
    reason: str | None = None
    try:
        if item.needs is not None and not target.flag(item.needs):
            raise NotApplicable(f"discovery does not advertise {item.needs}")
        item.check(target)
    except NotApplicable as missing:
        outcome, reason = "fail" if strict else "not-applicable", str(missing)
    except Failed as failed:
        outcome, reason = "fail", str(failed)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        # The answer lacks something that the contract requires.
        outcome, reason = "fail", f"an answer is not what the contract says: {type(error).__name__}: {error}"
    return Result(item.name, item.family, outcome, round(clock.monotonic() - began, 3), item.summary, reason)
