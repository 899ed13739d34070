"""The kit for sidecars: tries one with every scenario of CRP (N1)."""

from __future__ import annotations

from collections.abc import Callable, Collection

import httpx

from forestay.conformance.report import Result, Trial, coverage
from forestay.conformance.scenario import named
from forestay.conformance.sidecar_scenarios import of_sidecars
from forestay.conformance.sidecar_target import SidecarTarget
from forestay.conformance.trial import tried
from forestay.kernel import Clock, SystemClock


def conform_sidecar(
    url: str,
    key: str | None,
    *,
    names: Collection[str] = (),
    told: Callable[[Result], None] = lambda result: None,
    transport: httpx.BaseTransport | None = None,
    clock: Clock | None = None,
) -> Trial:
    """Try the sidecar at `url`, under which its `/sessions` are. `told` gets each result."""
    chosen, clock = named(names, of_sidecars), clock or SystemClock()
    results: list[Result] = []
    with SidecarTarget(url, key, transport=transport) as sidecar:
        for item in chosen:
            results.append(tried(sidecar, item, clock))
            sidecar.tidy()
            told(results[-1])
    return Trial("crp", url, all(item.outcome != "fail" for item in results), results, coverage(results))
