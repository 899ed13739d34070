"""Idempotency of requests (K1 to K5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forestay.kernel import Ids, Ledger, ManualClock, Problem, SeededRandomness
from forestay.runs.idempotency import GRACE_MS, KEEP_MS, LEASE_MS, Claim, Idempotency, Reply, is_final

DONE = Reply(201, b'{"runId":"r1"}', {"location": "/v1/runs/r1"})


@asynccontextmanager
async def opened(tmp_path: Path, clock: ManualClock, owner: str = "boot-1") -> AsyncIterator[Idempotency]:
    ids = Ids(clock, SeededRandomness(owner))
    async with Ledger.open(tmp_path / "ledger.db", clock=clock, ids=ids) as ledger:
        yield Idempotency(ledger, clock, ids, owner=owner, key=b"k" * 32)


async def begin(store: Idempotency, digest: str = "d1", key: str = "key-1", tenant: str = "t") -> Claim | Reply:
    return await store.begin(tenant, "POST /v1/runs", key, digest)


async def claimed(store: Idempotency, digest: str = "d1") -> Claim:
    found = await begin(store, digest)
    assert isinstance(found, Claim)
    return found


async def refusal(store: Idempotency, digest: str = "d1") -> str:
    with pytest.raises(Problem) as caught:
        await begin(store, digest)
    assert caught.value.row.http == 409
    return caught.value.key


async def test_k1_exactly_one_of_many_runs(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as store:
        found = await asyncio.gather(*(begin(store) for _ in range(50)), return_exceptions=True)
        assert sum(isinstance(item, Claim) for item in found) == 1
        assert {item.key for item in found if isinstance(item, Problem)} == {"idempotency_in_flight"}


async def test_k2_the_answer_is_given_again_for_a_day(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as store:
        await store.settle(await claimed(store), DONE)
        assert await begin(store) == DONE
        assert await refusal(store, "d2") == "idempotency_key_mismatch"
        clock.advance(KEEP_MS / 1000 - 1)
        assert await begin(store) == DONE
        clock.advance(2)
        first = await claimed(store, "d2")
        assert first.seq == 2


async def test_k2_the_answer_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as store:
        await store.settle(await claimed(store), DONE)
    async with opened(tmp_path, clock, "boot-2") as store:
        assert await begin(store) == DONE


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 502, 503, 504, 507])
async def test_k3_passing_failures_are_executed_again(status: int, tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as store:
        first = await claimed(store)
        await store.settle(first, Reply(status, b"{}"))
        second = await claimed(store, "d2")  # even with another body: nothing was done
        assert second.reserved != first.reserved
        await store.settle(second, DONE)
        assert await begin(store, "d2") == DONE


@pytest.mark.parametrize("status", [200, 201, 202, 204, 404, 409, 410, 413, 422, 501])
async def test_k3_final_answers_are_kept(status: int, tmp_path: Path, clock: ManualClock) -> None:
    assert is_final(status) is (status < 500)
    async with opened(tmp_path, clock) as store:
        await store.settle(await claimed(store), Reply(status, b"{}"))
        found = await begin(store)
        assert isinstance(found, Reply if status < 500 else Claim)


@pytest.mark.parametrize("reply", [None, Reply(500, b"{}"), Reply(503, b"{}")])
async def test_k4_a_request_that_broke_off_lets_its_key_go_and_hands_its_id_on(
    reply: Reply | None, tmp_path: Path, clock: ManualClock
) -> None:
    async with opened(tmp_path, clock) as store:
        lost = await claimed(store)
        await store.settle(lost, reply)
        again = await claimed(store)
        assert again.reserved == lost.reserved


async def test_k4_after_a_crash_the_lease_ends_and_the_id_stays(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as store:
        lost = await claimed(store)
    async with opened(tmp_path, clock, "boot-2") as store:
        assert await refusal(store) == "idempotency_in_flight"
        clock.advance(LEASE_MS / 1000)
        assert await refusal(store, "d2") == "idempotency_key_mismatch"
        taken = await claimed(store)
        assert taken.reserved == lost.reserved
        assert await refusal(store) == "idempotency_in_flight"
        await store.settle(taken, DONE)
        assert await begin(store) == DONE


async def test_k4_a_late_owner_does_not_overwrite_who_took_over(tmp_path: Path, clock: ManualClock) -> None:
    async with Ledger.open(tmp_path / "ledger.db", clock=clock) as ledger:
        late = Idempotency(ledger, clock, Ids(clock), owner="a", key=b"k" * 32)
        taker = Idempotency(ledger, clock, Ids(clock), owner="b", key=b"k" * 32)
        lost = await claimed(late)
        clock.advance(LEASE_MS / 1000)
        taken = await claimed(taker)
        await late.settle(lost, Reply(201, b'"late"'))
        await taker.settle(taken, DONE)
        assert await begin(late) == DONE


async def test_k4_the_claim_of_a_process_that_is_gone_does_not_wait_for_its_lease(
    tmp_path: Path, clock: ManualClock
) -> None:
    living = {"a", "b"}

    async def there() -> set[str]:
        return living

    async with Ledger.open(tmp_path / "ledger.db", clock=clock) as ledger:
        dying = Idempotency(ledger, clock, Ids(clock), owner="a", key=b"k" * 32, living=there)
        taker = Idempotency(ledger, clock, Ids(clock), owner="b", key=b"k" * 32, living=there)
        lost = await claimed(dying)
        clock.advance(GRACE_MS / 1000)
        with pytest.raises(Problem, match="is being executed"):
            await begin(taker)
        living.remove("a")
        assert (await claimed(taker)).reserved == lost.reserved


async def test_k4_a_process_that_has_just_begun_is_not_taken_for_gone(tmp_path: Path, clock: ManualClock) -> None:
    async def nobody() -> set[str]:
        return set()

    async with Ledger.open(tmp_path / "ledger.db", clock=clock) as ledger:
        young = Idempotency(ledger, clock, Ids(clock), owner="a", key=b"k" * 32, living=nobody)
        other = Idempotency(ledger, clock, Ids(clock), owner="b", key=b"k" * 32, living=nobody)
        await claimed(young)
        clock.advance(GRACE_MS / 1000 - 0.001)
        with pytest.raises(Problem, match="is being executed"):
            await begin(other)


async def test_tenants_and_keys_are_apart(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as store:
        await store.settle(await claimed(store), DONE)
        assert isinstance(await begin(store, tenant="u"), Claim)
        assert isinstance(await begin(store, key="key-2"), Claim)


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_k5_no_key_and_no_sealed_body_is_on_disk(tmp_path: Path, clock: ManualClock) -> None:
    secret = Reply(201, b'{"secret":"do-not-write-this"}', {}, sensitive=True)
    async with opened(tmp_path, clock) as store:
        found = await begin(store, key="customer-4711-order")
        assert isinstance(found, Claim)
        await store.settle(found, secret)
        assert await begin(store, key="customer-4711-order") == secret
    written = everything_in(tmp_path)
    assert b"customer-4711" not in written
    assert b"do-not-write-this" not in written
