"""Rate limits and backpressure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from forestay.console import Console
from forestay.host import Options
from forestay.kernel import Config, Http, ManualClock, Problem, Rate, config
from forestay.kernel import HttpRates as Rates
from forestay.surface.auth import Keys
from forestay.surface.hosting import serve
from forestay.surface.limits import Load, RateLimits


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


SETTINGS = """
[http.rates.keys.{key}]
per_second = 0.001
burst = 2

[http.rates.tenants.small]
per_second = 0.001
burst = 3

[http.rates.routes."runs.list"]
per_second = 0.001
burst = 4
"""


def test_rates_are_settings_for_one_key_one_tenant_and_one_route(tmp_path: Path) -> None:
    """Over real HTTP: an entry in forestay.toml limits its key, tenant or route, and nothing else."""

    async def key_of(keys: Keys, name: str, tenant: str = "default") -> tuple[str, dict[str, str]]:
        key, text = await keys.create(name, tenant=tenant)
        return key.key_id, {"Authorization": f"Bearer {text}"}

    async def main() -> None:
        async with serve(Options(data=tmp_path / "data")) as serving:
            slow_id, slow = await key_of(serving.services.keys, "slow")
            _, free = await key_of(serving.services.keys, "free")
            _, small = await key_of(serving.services.keys, "small", "small")
        (tmp_path / "forestay.toml").write_text(SETTINGS.format(key=slow_id))
        settings = config.load(tmp_path, environ={}).config
        async with (
            serve(Options(data=tmp_path / "data", config=settings), console=Console) as serving,
            httpx.AsyncClient(base_url=serving.url, trust_env=False) as http,
        ):

            async def asked(path: str, headers: dict[str, str], count: int) -> list[int]:
                return [(await http.get(path, headers=headers)).status_code for _ in range(count)]

            assert await asked("/v1/workflows", slow, 3) == [200, 200, 429]
            assert await asked("/v1/workflows", small, 4) == [200, 200, 200, 429]
            assert await asked("/v1/runs", free, 5) == [200, 200, 200, 200, 429]
            assert await asked("/v1/workflows", free, 20) == [200] * 20
            refused = await http.get("/v1/workflows", headers=slow)
            assert refused.json()["error"] == "rate_limited" and refused.json()["details"]["scope"] == "key"
            assert refused.headers["ratelimit-policy"] == '"key";q=2;w=2000'
            assert refused.headers["ratelimit"] == f'"key";r=0;t={refused.headers["retry-after"]}'
            # A person who is signed in with the slow key spends the same rate.
            door = await http.post("/login", data={"key": slow["Authorization"].removeprefix("Bearer ")})
            assert door.status_code == 303
            page = await http.get("/runs")
            assert page.status_code == 429 and "<h1>" in page.text and page.headers["retry-after"]

    asyncio.run(main())


def test_a_rate_for_an_unknown_operation_is_refused_at_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Config(http=Http(rates=Rates(routes={"runs.creat": Rate(1, 1)})))
        with pytest.raises(Problem) as caught:
            async with serve(Options(data=tmp_path, config=settings)):
                pass
        assert caught.value.key == "config_invalid" and "runs.create" in caught.value.details["fix"]

    asyncio.run(main())
