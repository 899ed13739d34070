"""Rate limits and backpressure."""

from __future__ import annotations

import pytest

from forestay.kernel import ManualClock, Problem
from forestay.surface.limits import Load, Rate, RateLimits, Rates


def refusal(limits: RateLimits, key: str = "k", tenant: str = "t", route: str = "r") -> Problem | None:
    try:
        limits.admit(key=key, tenant=tenant, route=route)
    except Problem as problem:
        return problem
    return None


def test_a_burst_passes_and_then_the_rate_holds(clock: ManualClock) -> None:
    limits = RateLimits(Rates(tenant=None, key=Rate(2, 3)), clock)
    assert [refusal(limits) is None for _ in range(4)] == [True, True, True, False]
    problem = refusal(limits)
    assert problem is not None and problem.retry_after_ms == 500 and problem.details["scope"] == "key"
    clock.advance(0.5)
    assert refusal(limits) is None
    assert refusal(limits) is not None
    clock.advance(3600)
    assert sum(refusal(limits) is None for _ in range(10)) == 3


@pytest.mark.parametrize(
    ("rates", "scope"),
    [
        (Rates(overall=Rate(1, 1)), "global"),
        (Rates(tenant=Rate(1, 1)), "tenant"),
        (Rates(key=Rate(1, 1)), "key"),
        (Rates(routes={"r": Rate(1, 1)}), "route"),
    ],
)
def test_the_refusal_names_its_scope(rates: Rates, scope: str, clock: ManualClock) -> None:
    limits = RateLimits(rates, clock)
    assert refusal(limits) is None
    problem = refusal(limits)
    assert problem is not None and problem.details["scope"] == scope


def test_others_are_not_counted(clock: ManualClock) -> None:
    limits = RateLimits(Rates(tenant=Rate(1, 2), key=Rate(1, 1), routes={"r": Rate(1, 1)}), clock)
    assert refusal(limits, key="a") is None
    assert refusal(limits, key="a") is not None
    assert refusal(limits, key="b") is None
    assert refusal(limits, key="c") is not None  # the tenant's two are spent
    assert refusal(limits, key="c", tenant="u") is None


def test_a_refusal_takes_nothing(clock: ManualClock) -> None:
    limits = RateLimits(Rates(tenant=Rate(1, 2), key=Rate(1, 1)), clock)
    assert refusal(limits, key="a") is None
    for _ in range(50):
        assert refusal(limits, key="a") is not None
    assert refusal(limits, key="b") is None


def test_the_number_of_buckets_is_bounded(clock: ManualClock) -> None:
    limits = RateLimits(Rates(tenant=None, key=Rate(1, 1)), clock)
    for number in range(40_000):
        limits.admit(key=str(number), tenant="t", route="r")
    assert len(limits._buckets) <= 16_384


def test_a_full_or_draining_host_says_503() -> None:
    load = Load(requests=1, streams=1)
    with load.enter(), load.enter("streams"):
        for kind in ("requests", "streams"):
            with pytest.raises(Problem) as caught, load.enter(kind):  # type: ignore[arg-type]
                pass
            assert caught.value.row.http == 503 and caught.value.retry_after_ms
    with load.enter():
        pass
    load.draining = True
    with pytest.raises(Problem), load.enter():
        pass
    assert load.active == 0


def test_a_key_has_a_share_of_what_may_be_open_and_all_have_the_whole() -> None:
    load = Load(requests=3, streams=3, requests_per_key=2, streams_per_key=1)
    with load.enter("requests", "a"), load.enter("requests", "a"), load.enter("streams", "a"):
        for kind in ("requests", "streams"):
            with pytest.raises(Problem) as refused, load.enter(kind, "a"):  # type: ignore[arg-type]
                pass
            assert refused.value.key == "rate_limited" and refused.value.details["scope"] == "key"
        with load.enter("requests", "b"), load.enter("streams", "b"):
            with pytest.raises(Problem) as full, load.enter("requests", "c"):
                pass
            assert full.value.key == "unavailable"
    with load.enter("requests", "a"), load.enter("streams", "a"):
        assert (load.active, load.streams) == (1, 1), "what ended is given back"
    assert not load._of_one, "and forgotten"
