"""Effects: their identity, and that none on record is performed again (F1 to F3, X4)."""

from __future__ import annotations

import base64
import hashlib
import itertools
from typing import Any

import pytest

from forestay.runs.execution import invocation_id
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeError, NodeRegistry
from forestay.runs.types import CreateRun
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, node, start, workflow


def registry() -> NodeRegistry:
    return standard_registry(sample_seams=True, custom=False)


def test_f1_the_identity_of_an_effect_is_the_contracts() -> None:
    parts = (b"openwop:activity:v2", b"acme", b"run_1", b"pay", b"0:charge", b"bank")
    expected = base64.urlsafe_b64encode(hashlib.sha256(b"\0".join(parts)).digest()).rstrip(b"=").decode()
    assert invocation_id("acme", "run_1", "pay", 0, "charge", "bank") == expected


async def test_f2_an_effect_on_record_is_not_performed_again(host: Host) -> None:
    types, calls = registry(), []

    @types.node("test.pay")
    async def pay(ctx: Any) -> dict[str, Any]:
        async def charge() -> str:
            calls.append(ctx.caller("charge", "bank").idempotency_key)
            return "receipt"

        receipt = await ctx.effect("charge", charge, provider="bank")
        if ctx.attempt < 3:
            raise NodeError("later", "after the payment")
        return {"receipt": receipt}

    async with host(nodes=types) as runs:
        settings = {"retry": {"maxAttempts": 3, "initialDelayMs": 10}}
        run_id = await start(runs, workflow("w", [node("a", "test.pay", settings=settings)]))
        run = await finish(runs, run_id)
        assert run.outputs == {"receipt": "receipt"}
        assert len(calls) == 1


async def test_f3_an_effect_that_was_not_recorded_keeps_its_identity(host: Host) -> None:
    types, keys = registry(), []

    @types.node("test.pay")
    async def pay(ctx: Any) -> dict[str, Any]:
        async def charge() -> str:
            keys.append(ctx.caller("charge", "bank").idempotency_key)
            if len(keys) < 2:
                raise NodeError("down", "the bank is down")
            return "receipt"

        return {"receipt": await ctx.effect("charge", charge, provider="bank")}

    async with host(nodes=types) as runs:
        settings = {"retry": {"maxAttempts": 3, "initialDelayMs": 10}}
        await finish(runs, await start(runs, workflow("w", [node("a", "test.pay", settings=settings)])))
        assert len(keys) == 2
        assert keys[0] == keys[1]


async def test_x4_what_is_for_later_is_on_disk_before_the_next_effect_begins(host: Host) -> None:
    types, seen = registry(), []

    @types.node("test.plan")
    async def plan(ctx: Any) -> dict[str, Any]:
        async def recorded() -> list[str]:
            records = await runs._ledger.read(f"run/{ctx.run_id}")
            return [item.payload["key"] for item in records if item.type == "forestay.effect.recorded"]

        first = await ctx.effect("first", lambda: 1, later=True)
        second = await ctx.effect("second", lambda: first + 1, later=True)
        assert await ctx.effect("second", lambda: 0, later=True) == second, "known before it is in the log"
        assert ctx.recorded("second") == second
        seen.append(await recorded())
        seen.append(await ctx.effect("third", recorded))
        return {"sum": first + second}

    async with host(nodes=types) as runs:
        commits: list[list[str]] = []
        commit = runs._ledger.commit

        async def counted(*appends: Any) -> Any:
            commits.append([draft.type for item in appends for draft in item.drafts])
            return await commit(*appends)

        await runs.put_workflow(workflow("w", [node("a", "test.plan")]), tenant="acme")
        runs._ledger.commit = counted  # type: ignore[method-assign]
        made = await runs.create_run(CreateRun(workflow_id="w"), "acme")
        assert (await runs.wait(made.run_id, "acme")).outputs == {"sum": 3}
        assert seen == [[], ["first", "second"]]
        assert commits == [
            ["run.started", "node.started"],
            ["forestay.effect.recorded", "forestay.effect.recorded"],
            ["forestay.effect.recorded"],
            ["node.completed", "run.completed"],
        ]


async def test_x4_what_is_for_later_goes_with_whatever_comes_next(host: Host) -> None:
    types, done = registry(), []

    @types.node("test.plan")
    async def plan(ctx: Any) -> dict[str, Any]:
        await ctx.effect("look", lambda: done.append("look"), later=True)
        if ctx.attempt < 2:
            raise NodeError("soon", "failed after it")
        await ctx.effect("think", lambda: done.append("think"), later=True)
        await ctx.sleep(1000)
        return {}

    async with host(nodes=types) as runs:
        settings = {"retry": {"maxAttempts": 3, "initialDelayMs": 10}}
        await finish(runs, await start(runs, workflow("w", [node("a", "test.plan", settings=settings)])))
        assert done == ["look", "think"], "a failure and a timer took them along"


@pytest.mark.parametrize(("kind", "most"), [("core.noop", 1), ("test.step", 6), ("test.effect", 11)])
async def test_a_run_of_five_costs_no_more_commits_than_it_has_facts_to_wait_for(
    host: Host, kind: str, most: int
) -> None:
    """Instant nodes go in together; a step is one commit, in which the next begins; an effect is one more."""
    types = standard_registry(custom=False)

    @types.node("test.step")
    async def step(ctx: Any) -> dict[str, Any]:
        return {"v": 1}

    @types.node("test.effect")
    async def effect(ctx: Any) -> dict[str, Any]:
        return {"v": await ctx.effect("work", lambda: 1)}

    names = [f"s{number}" for number in range(5)]
    document = workflow("w", [node(name, kind) for name in names], [edge(a, b) for a, b in itertools.pairwise(names)])
    async with host(nodes=types) as runs:
        await runs.put_workflow(document, tenant="acme")
        commits: list[int] = []
        commit = runs._ledger.commit

        async def counted(*appends: Any) -> Any:
            commits.append(sum(len(item.drafts) for item in appends))
            return await commit(*appends)

        runs._ledger.commit = counted  # type: ignore[method-assign]
        made = await runs.create_run(CreateRun(workflow_id="w"), "acme")
        run = await runs.wait(made.run_id, "acme")
        assert run.status == "completed"
        assert len(commits) == most
        assert sum(commits) == len(await runs.events(made.run_id, "acme"))
