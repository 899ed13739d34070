"""A connection that is cut before any one message of an append, in both directions."""

from __future__ import annotations

import asyncio

import pytest

from forestay.kernel.ledger import Append, Draft, Ledger
from forestay.kernel.problems import Problem
from tests.postgres import new_ledger, server_address
from tests.wire import Wire, wire


async def cut_before(line: Wire, schema: str, number: int) -> str | None:
    """Append while message `number` is not carried: what became of it; None when there is no such message."""
    async with Ledger.open(line.address(schema)) as ledger:
        await ledger.append("run/warm", [Draft("t", [-1])])
        line.cut_at(number)
        drafts = [Draft("t", [number])]
        try:
            await ledger.commit(Append("run/a", drafts), Append("run/b", drafts))
            outcome = "acknowledged"
        except Problem as problem:
            assert problem.key == "ledger_unreachable", problem
            outcome = "refused"
        was_cut = line.was_cut
        line.cut_at(0)
        await ledger.append("run/after", [Draft("t", [number])])  # the next write starts clean (L9)
    return outcome if was_cut else None


@pytest.mark.sweep
def test_l2_l5_l9_a_connection_is_cut_at_every_phase_of_an_append() -> None:
    address = new_ledger()
    schema = address.rpartition("schema=")[2]

    async def play() -> dict[int, str]:
        outcomes: dict[int, str] = {}
        with wire(server_address()) as line:
            while (outcome := await cut_before(line, schema, len(outcomes) + 1)) is not None:
                outcomes[len(outcomes) + 1] = outcome
        return outcomes

    async def look() -> list[list[int]]:
        async with Ledger.open(address) as ledger:
            assert (await ledger.verify()).ok
            return [[record.payload[0] for record in await ledger.read(f"run/{name}")] for name in "ab"]

    outcomes = asyncio.run(play())
    one, other = asyncio.run(look())
    assert one == other, "both streams or none (L5)"
    assert len(one) == len(set(one)), "nothing is written twice"
    assert {number for number, outcome in outcomes.items() if outcome == "acknowledged"} <= set(one)
    assert set(outcomes.values()) == {"acknowledged", "refused"}, "phases before the commit, and phases around it"
    refused = {number for number, outcome in outcomes.items() if outcome == "refused"}
    assert refused & set(one), "a commit whose answer was lost"
    assert refused - set(one), "a commit that never arrived"
