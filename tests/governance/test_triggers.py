"""Inbound work: subscriptions, deliveries, dead letters (G1 to G3, Q1 to Q5), on a real ledger."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from forestay.governance import (
    Staff,
    Subscription,
    SubscriptionState,
    TriggerRetry,
    Triggers,
    TriggerTable,
    delay_ms,
    move,
)
from forestay.kernel import Ids, Problem, SeededRandomness, mistakes
from forestay.runs import RunFilter, Runs, projections
from tests.governance.test_roster import ENTRY, directory
from tests.runs.documents import node, workflow
from tests.runs.patient import CountedLedger, PatientClock

TENANT = "acme"
WORK = workflow("answer", [node("n")], variables=[{"name": "order", "type": "string", "required": True}])


class World:
    """A queue that is opened again on the same file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.lives, self.commits = folder, PatientClock(), 0, list[int]()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[World]:
        self.lives += 1
        ids = Ids(self.clock, SeededRandomness(self.lives))
        tables = [*projections(), TriggerTable()]
        async with CountedLedger.open(self.folder / "l.db", projections=tables, clock=self.clock, ids=ids) as ledger:
            ledger.observe(lambda records, _: self.commits.append(len(records)))
            self.ledger = ledger
            self.runs = Runs(ledger, clock=self.clock, ids=ids, randomness=SeededRandomness(1), secret=b"s" * 32)
            self.staff = Staff(ledger, directory(ledger), runs=lambda: self.runs)
            self.triggers = Triggers(ledger, self.runs, self.staff, clock=self.clock, ids=ids, secret=b"k" * 32)
            async with self.runs:
                await self.runs.put_workflow(WORK, tenant=None)
                yield self

    async def started(self) -> list[str]:
        page = await self.runs.list_runs(RunFilter(), TENANT, None, 100)
        return [run.run_id for run in page.runs]


@pytest.mark.parametrize("first", get_args(SubscriptionState))
@pytest.mark.parametrize("to", get_args(SubscriptionState))
def test_g1_only_the_contracts_arrows_lead_on(first: Any, to: Any) -> None:
    arrows = {
        ("active", "paused"), ("active", "failed"), ("active", "dead-lettered"), ("paused", "active"),
        ("failed", "active"), ("failed", "dead-lettered"), ("dead-lettered", "active"),
    }  # fmt: skip
    found = Subscription("sub_1", "queue", TENANT, "answer", first)
    if (first, to) in arrows:
        assert move(found, to).state == to
    else:
        with pytest.raises(Problem):
            move(found, to)


@pytest.mark.parametrize("backoff", ["none", "fixed", "exponential"])
def test_g2_pauses_never_shrink_and_end(backoff: Any) -> None:
    policy = TriggerRetry(40, backoff)
    pauses = [delay_ms(policy, attempt) for attempt in range(1, 41)]
    assert pauses[-1] is None and None not in pauses[:-1]
    known = [pause for pause in pauses if pause is not None]
    assert known == sorted(known)
    assert known[-1] == {"none": 0, "fixed": 1000, "exponential": 3_600_000}[backoff]


async def test_q2_q3_an_event_starts_one_run_that_names_its_cause(tmp_path: Path, reference: Path) -> None:
    async with World(tmp_path).open() as world:
        made = await world.triggers.subscriptions.subscribe(TENANT, "queue", "answer")
        first = await world.triggers.offer(TENANT, made.subscription_id, "order-1 SECRET", {"order": "1"})
        again = await world.triggers.offer(TENANT, made.subscription_id, "order-1 SECRET", {"order": "1"})
        assert again.delivery_id == first.delivery_id
        await world.triggers.deliver_due()
        later = await world.triggers.offer(TENANT, made.subscription_id, "order-1 SECRET", {"order": "1"})
        (run_id,) = await world.started()
        assert (later.run_id, later.state) == (run_id, "delivered")
        events = (await world.runs.poll(run_id, TENANT, -1, 0)).events
        assert [event.type for event in events[:2]] == ["run.started", "trigger.delivery.attempted"]
        assert events[0].causation_id == events[1].event_id
        schemas = json.loads((reference / "schemas" / "run-event-payloads.schema.json").read_text("utf-8"))["$defs"]
        assert mistakes(schemas["triggerDeliveryAttempted"], events[1].payload) == []
        assert "SECRET" not in json.dumps([event.payload for event in events])
        shown = json.loads((reference / "schemas" / "trigger-subscription.schema.json").read_text("utf-8"))
        assert mistakes(shown, msgspec.to_builtins(made.shown)) == []
        world.clock.advance(24 * 3600 + 1)  # behind the retention it is another event
        new = await world.triggers.offer(TENANT, made.subscription_id, "order-1 SECRET", {"order": "1"})
        assert new.delivery_id != first.delivery_id


async def test_q4_a_delivery_that_fails_is_a_dead_letter_and_can_be_driven_again(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        made = await world.triggers.subscriptions.subscribe(TENANT, "queue", "answer", retry=TriggerRetry(3, "fixed"))
        bad = await world.triggers.offer(TENANT, made.subscription_id, "e", {"order": 7})  # no text: no run takes it
        waits = []
        for _ in range(3):
            waits.append(await world.triggers.deliver_due())
            world.clock.advance(1)
        assert waits == [1.0, 1.0, 60.0]
        (dead,) = await world.triggers.deliveries(TENANT, "dead")
        assert (dead.delivery_id, dead.attempts, dead.run_id) == (bad.delivery_id, 3, None)
        assert (await world.triggers.subscriptions.get(TENANT, made.subscription_id)).state == "dead-lettered"
        with pytest.raises(Problem) as caught:
            await world.triggers.offer(TENANT, made.subscription_id, "f", {"order": "2"})
        assert caught.value.key == "state_conflict"
        with pytest.raises(Problem):
            await world.triggers.redrive("other", bad.delivery_id)
        await world.triggers.redrive(TENANT, bad.delivery_id)
        assert (await world.triggers.subscriptions.get(TENANT, made.subscription_id)).state == "active"
        relaxed = {**WORK, "version": "1.0.1", "variables": [{"name": "order", "type": "number"}]}
        await world.runs.put_workflow(relaxed, tenant=None)
        await world.triggers.deliver_due()
        assert [item.state for item in await world.triggers.deliveries(TENANT)] == ["delivered"]
        assert len(await world.started()) == 1


async def test_g1_a_paused_subscription_takes_nothing_and_starts_nothing(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        made = await world.triggers.subscriptions.subscribe(TENANT, "webhook", "answer")
        await world.triggers.offer(TENANT, made.subscription_id, "before", {"order": "1"})
        await world.triggers.subscriptions.pause(TENANT, made.subscription_id)
        with pytest.raises(Problem):
            await world.triggers.offer(TENANT, made.subscription_id, "after", {"order": "2"})
        await world.triggers.deliver_due()
        assert await world.started() == []
        await world.triggers.subscriptions.resume(TENANT, made.subscription_id)
        await world.triggers.deliver_due()
        assert len(await world.started()) == 1
        with pytest.raises(Problem):
            await world.triggers.subscriptions.get("other", made.subscription_id)
        assert await world.triggers.subscriptions.listed("other") == []


async def test_a_members_trigger_is_attributed_and_inert_while_it_rests(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        await world.staff.put(TENANT, ENTRY)
        made = await world.triggers.subscriptions.subscribe(
            TENANT, "queue", "answer", roster_id="host:sally", retry=TriggerRetry(2, "none")
        )
        await world.triggers.offer(TENANT, made.subscription_id, "e", {"order": "1"})
        await world.triggers.deliver_due()
        (run_id,) = await world.started()
        events = (await world.runs.poll(run_id, TENANT, -1, 0)).events
        assert [event.type for event in events[1:3]] == ["roster.run.initiated", "trigger.delivery.attempted"]
        assert events[1].payload["triggerSubscriptionId"] == made.subscription_id
        await world.staff.put(TENANT, {**ENTRY, "enabled": False})
        await world.triggers.offer(TENANT, made.subscription_id, "f", {"order": "2"})
        await world.triggers.deliver_due()
        assert len(await world.started()) == 1
        assert len(await world.triggers.deliveries(TENANT, "dead")) == 1


async def test_q6_a_subscription_that_rests_delays_no_other(tmp_path: Path) -> None:
    """More events than are looked at in one go wait for a subscription that is paused."""
    async with World(tmp_path).open() as world:
        resting = await world.triggers.subscriptions.subscribe(TENANT, "queue", "answer")
        for number in range(101):
            await world.triggers.offer(TENANT, resting.subscription_id, f"e{number}", {"order": "1"})
        await world.triggers.subscriptions.pause(TENANT, resting.subscription_id)
        other = await world.triggers.subscriptions.subscribe(TENANT, "queue", "answer")
        await world.triggers.offer(TENANT, other.subscription_id, "mine", {"order": "1"})
        await world.triggers.deliver_due()
        assert len(await world.started()) == 1


async def test_q1_what_is_due_of_a_removed_subscription_is_a_dead_letter(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        made = await world.triggers.subscriptions.subscribe(TENANT, "queue", "answer")
        due = await world.triggers.offer(TENANT, made.subscription_id, "e", {"order": "1"})
        with pytest.raises(Problem):
            await world.triggers.subscriptions.remove("other", made.subscription_id)
        await world.triggers.subscriptions.remove(TENANT, made.subscription_id)
        await world.triggers.deliver_due()
        assert (await world.triggers.delivery(TENANT, due.delivery_id)).state == "dead"
        assert await world.triggers.subscriptions.listed(TENANT) == []
        with pytest.raises(Problem) as caught:
            await world.triggers.redrive(TENANT, due.delivery_id)
        assert caught.value.key == "not_found"


async def test_a_source_that_nothing_drives_is_refused(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        assert world.triggers.capability()["sources"] == ["queue", "webhook", "schedule", "form"]  # it has no mailbox
        with pytest.raises(Problem) as caught:
            await world.triggers.subscriptions.subscribe(TENANT, "email", "answer")
        assert caught.value.key == "schema_mismatch" and "mailbox" in caught.value.details["fix"]


@pytest.mark.parametrize("seed", range(3))
async def test_q1_q2_every_accepted_event_starts_one_run_though_the_host_dies_after_any_commit(
    tmp_path: Path, seed: int
) -> None:
    """Random events, some of them twice; cut after a commit, open again, deliver: one run for each key."""
    chance = random.Random(seed)
    world = World(tmp_path / "whole")
    async with world.open():
        made = await world.triggers.subscriptions.subscribe(TENANT, "queue", "answer", retry=TriggerRetry(1))
        for _ in range(6):
            key = chance.choice("abcd")
            await world.triggers.offer(TENANT, made.subscription_id, key, {"order": key})
            if chance.random() < 0.5:
                await world.triggers.deliver_due()
        await world.triggers.deliver_due()
        lines = [line async for line in world.ledger.export("")]
    cuts = list(itertools.accumulate(world.commits))
    for kept in chance.sample(cuts[3:], min(8, len(cuts) - 3)):
        folder = tmp_path / f"cut-{kept}"
        folder.mkdir()
        cut = World(folder)
        tables = [*projections(), TriggerTable()]
        async with CountedLedger.open(folder / "l.db", projections=tables, clock=cut.clock) as ledger:
            await ledger.import_lines(lines[:kept])
        async with cut.open():
            await cut.triggers.deliver_due()
            received = [json.loads(line)["payload"] for line in lines[:kept] if b'"trigger.received"' in line]
            states = [item.state for item in await cut.triggers.deliveries(TENANT)]
            assert states == ["delivered"] * len(received)
            assert len(await cut.started()) == len({item["dedupKey"] for item in received}) == len(received)
