"""Random whole workflows on the real engine, in the clock's time: what is accepted runs, and every run ends.

Of each run: it ends without a fault of ours; its log, folded again, is the run as it was shown; replayed, it does not
diverge; and an engine that dies on the way is succeeded by one that ends the run alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import msgspec
import pytest

from forestay.kernel import Problem
from forestay.runs.evolve import evolve
from forestay.runs.log import PRIVATE, stream_of, to_event
from forestay.runs.service import Runs
from forestay.runs.state import ENDED, Event, RunState, snapshot
from forestay.runs.types import CreateRun, ForkRequest, RunSnapshot
from forestay.runs.workflows import Ref
from tests.runs.conftest import Host
from tests.runs.documents import finish
from tests.runs.whole import CHILD, Author, spoil

INPUTS: dict[str, Any] = {"x": 1, "s": "text"}
HOUR = 3600


async def begin(runs: Runs, document: dict[str, Any]) -> str:
    await runs.put_workflow(CHILD, tenant=None)
    await runs.put_workflow(document, tenant=None)
    request = CreateRun(workflow_id=document["id"], inputs=INPUTS, configurable={"runTimeoutMs": HOUR * 1000})
    return (await runs.create_run(request, "acme", "alice")).run_id


async def end(runs: Runs, run_id: str) -> RunSnapshot:
    async with asyncio.timeout(3 * HOUR):
        run = await finish(runs, run_id)
    assert run.error is None or run.error.code not in ("internal_error", "internal"), run.error
    return run


async def meddle(runs: Runs, run_id: str, chance: random.Random) -> None:
    """What people do to a run while it runs; what a run refuses, it refuses with a Problem."""
    for _ in range(chance.randint(1, 8)):
        await asyncio.sleep(chance.random() * 4)
        deed = chance.choice(["pause", "resume", "signal", "answer", "answer", "fork", "query", "cancel"])
        try:
            if deed == "pause":
                await runs.pause(run_id, "acme", drain_policy=chance.choice(["immediate", "drain-current-node"]))
            elif deed == "resume":
                await runs.resume(run_id, "acme")
            elif deed == "signal":
                await runs.signal(run_id, "acme", "e", {"a": chance.randint(0, 1)})
            elif deed == "answer":
                for asked in await runs.interrupts(run_id, "acme"):
                    value = {"action": "accept", "answers": {"q": 1}, "voter": str(chance.random())}
                    body = {"resumeValue": value}
                    await runs.resolve_by_node(run_id, asked.node_id, "acme", body, "alice", delegate=True)
            elif deed == "fork":
                length = (await runs.get_run(run_id, "acme")).last_sequence + 1
                request = ForkRequest(mode="branch", from_seq=chance.randrange(length))
                await end(runs, (await runs.fork(run_id, "acme", request)).run_id)
            elif deed == "query":
                await runs.query(run_id, "acme", "[variables, channels.c, nodes.n0]")
            elif chance.random() < 0.2:
                await runs.cancel(run_id, "acme")
        except Problem as problem:
            assert problem.key not in ("internal", "ledger_conflict"), problem
    with contextlib.suppress(Problem):  # a run that is paused, or will be
        await runs.resume(run_id, "acme")


WAITING = ("all_success", "all_complete", "none_failed")
UNDER_WAY = ("node.completed", "node.retried", "node.suspended", "node.cancelled", "forestay.timer.set")


def lawful(state: RunState, event: Event) -> bool:
    """Whether what happens to a node can happen to it as it stands."""
    if event.node is None or not event.type.startswith(("node.", "forestay.timer.", "forestay.loop.")):
        return True
    status = state.nodes[event.node].status
    if event.type == "node.started":
        return status == ("idle" if event.payload["attempt"] == 1 else "retrying")
    if event.type == "forestay.loop.taken":
        return status == "completed"
    if event.type == "node.skipped":
        return status == "idle"
    if event.type == "node.failed" and event.payload["error"]["code"] == "capability_not_provided":
        return status == "idle"
    return status not in ("idle", *ENDED) or event.type not in (*UNDER_WAY, "node.failed")


async def fold_by_steps(runs: Runs, run_id: str) -> RunState:
    """The run's state from its log, each step checked: the node could take it, and edges are counted once."""
    records = await runs._ledger.read(stream_of(run_id))
    stored = await runs._workflows.at(Ref(*records[0].attrs[PRIVATE]["workflow"]))
    state = runs._engine.blank(run_id, stored)
    for event in map(to_event, records):
        assert lawful(state, event), (event, state.nodes[event.node or ""].status)
        evolve(state, event)
        for name, node in state.nodes.items():
            brought = [state.edges.get(edge.id) for edge in state.plan.nodes[name].incoming]
            tally = [brought.count(outcome) for outcome in ("success", "failed", "skipped")]
            assert tally == [node.success, node.failed, node.skipped], (event, name)
    return state


async def check(runs: Runs, run_id: str) -> None:
    """The log folds to what was shown, and a replay of it does not diverge."""
    shown = await runs.get_run(run_id, "acme")
    folded = snapshot(await fold_by_steps(runs, run_id), 10**15)
    alone = msgspec.structs.replace(shown, child_runs=[])  # whose children a log does not know
    assert msgspec.to_builtins(folded) == msgspec.to_builtins(alone)
    fork = await runs.fork(run_id, "acme", ForkRequest(mode="replay"))
    again = await runs.events(fork.run_id, "acme")
    assert [event.payload for event in again if event.type == "replay.diverged"] == []
    assert (await runs.get_run(fork.run_id, "acme")).status == shown.status


def alike(one: RunSnapshot, other: RunSnapshot, document: dict[str, Any]) -> None:
    """Check what two runs of one document must have in common.

    A node that fails a run cuts off what runs beside it, wherever that happens to be. Of two failed runs only what led
    to a failure is compared.
    """
    assert one.status == other.status
    assert (one.error and one.error.code) == (other.error and other.error.code)
    names = {node["id"] for node in document["nodes"]}
    if one.status == "failed":
        names = _before(
            {name for name in names if _stands(one, name)[0] == _stands(other, name)[0] == "failed"}, document
        )
    else:
        assert _timeless(one.variables.get("y")) == _timeless(other.variables.get("y"))
    assert {name: _stands(one, name) for name in names} == {name: _stands(other, name) for name in names}


def _stands(run: RunSnapshot, name: str) -> tuple[str, int]:
    node = run.node_states.get(name)
    return (node["status"], node["attempt"]) if node else ("idle", 0)


def _before(names: set[str], document: dict[str, Any]) -> set[str]:
    """These nodes and all that they waited for."""
    waits = [edge for edge in document["edges"] if edge.get("triggerRule", "all_success") in WAITING]
    found, wanted = set(names), list(names)
    while wanted:
        name = wanted.pop()
        sources = {edge["sourceNodeId"] for edge in waits if edge["targetNodeId"] == name and "label" not in edge}
        wanted += sources - found
        found |= sources
    return found


def _timeless(value: Any) -> Any:
    """`value` without the moments at which entries of channels were written (W20): two runs differ in those."""
    if isinstance(value, dict):
        return {name: _timeless(item) for name, item in value.items() if name != "_ts"}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


async def one(host: Host, seed: int) -> None:
    document = Author(seed).document()
    chance = random.Random(seed)
    async with host() as runs:
        quiet = await begin(runs, document)
        undisturbed = await end(runs, quiet)
        await check(runs, quiet)
        busy = await begin(runs, document)
        await meddle(runs, busy, chance)
        await end(runs, busy)
        await check(runs, busy)
        dying = await begin(runs, document)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(chance.random() * 10):
                await finish(runs, dying)
    async with host() as runs:
        alike(await end(runs, dying), undisturbed, document)
        await check(runs, dying)


async def spoilt(host: Host, seeds: range) -> None:
    """Documents with something hostile in them: refused with the place, or run to an end."""
    async with host() as runs:
        for seed in seeds:
            chance = random.Random(seed)
            document = Author(seed).document(f"spoilt{seed}")
            for _ in range(chance.randint(1, 3)):
                spoil(document, chance)
            try:
                run_id = await begin(runs, document)
            except Problem as problem:
                assert problem.key in ("workflow_invalid", "schema_mismatch", "invalid_json"), (seed, problem)
                assert problem.key == "invalid_json" or problem.details["at"].startswith("$"), (seed, problem)
                continue
            await end(runs, run_id)
            await check(runs, run_id)


async def test_a_document_with_something_hostile_in_it_is_refused_or_runs(host: Host) -> None:
    await spoilt(host, range(150))


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(1000, 5000, 200))
async def test_many_documents_with_something_hostile_in_them(host: Host, first: int) -> None:
    await spoilt(host, range(first, first + 200))


@pytest.mark.parametrize("seed", range(40))
async def test_a_workflow_at_random_ends_as_its_log_says(host: Host, seed: int) -> None:
    await one(host, seed)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(1000, 2000))
async def test_many_workflows_at_random_end_as_their_logs_say(host: Host, seed: int) -> None:
    await one(host, seed)
