"""Transitions as runs with gates, on a real ledger (M1 to M4 of `governance/deployments.py`)."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forestay.governance import WORKFLOW, Deployments, Score, Transition
from forestay.kernel import DeploymentGate, Ids, Problem, SeededRandomness
from forestay.runs import CreateRun, Runs, RunSnapshot, projections, standard_registry
from tests.runs.patient import CountedLedger, PatientClock

TENANT, AGENT = "acme", "acme.agents.support"
ALL = ["deploy:promote", "deploy:pause", "deploy:rollback"]
SCORES = {
    "run_good": Score(AGENT, "1.0.0", True, 0.9),
    "run_bad": Score(AGENT, "1.0.0", False, 0.4),
    "run_other": Score("x", "1.0.0", True, 1.0),
    "run_older": Score(AGENT, "0.9.0", True, 1.0),
}


class World:
    def __init__(self, folder: Path, *gates: DeploymentGate) -> None:
        self.folder, self.gates, self.clock, self.lives = folder, gates, PatientClock(), 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[World]:
        self.lives += 1
        ids = Ids(self.clock, SeededRandomness(self.lives))
        async with CountedLedger.open(
            self.folder / "l.db", projections=projections(), clock=self.clock, ids=ids
        ) as ledger:

            async def scores(tenant: str, run_id: str) -> Score | None:
                return SCORES.get(run_id) if tenant == TENANT else None

            async def exists(tenant: str, agent_id: str, version: str) -> None:
                if version == "9.9.9":
                    raise Problem("not_found", "There is no such version.")

            self.ledger = ledger
            self.deployments = Deployments(ledger, self.gates, runs=lambda: self.runs, scores=scores, exists=exists)
            registry = standard_registry()
            registry.add(self.deployments.type)
            self.runs = Runs(
                ledger, clock=self.clock, ids=ids, randomness=SeededRandomness(1), secret=b"s" * 32, nodes=registry
            )
            async with self.runs:
                await self.runs.put_workflow(WORKFLOW, tenant=None)
                yield self

    async def move(self, version: str, verb: Any, scopes: list[str] = ALL, **fields: Any) -> RunSnapshot:
        wanted = Transition(version, verb, **fields)
        made = await self.deployments.request(TENANT, AGENT, wanted, principal="alice", scopes=scopes)
        return await self.runs.wait(made.run_id, TENANT)

    async def live(self, version: str, **fields: Any) -> RunSnapshot:
        for _ in range(3):
            await self.move(version, "promote")
        return await self.move(version, "promote", **fields)

    async def told(self, run_id: str) -> list[tuple[str, Any]]:
        events = (await self.runs.poll(run_id, TENANT, -1, 0)).events
        wanted = ("authorization.", "deployment.", "approval.")
        return [(event.type, event.payload) for event in events if event.type.startswith(wanted)]

    async def states(self) -> dict[str, str]:
        return {item.version: item.state for item in await self.deployments.listed(TENANT, AGENT)}


async def test_m1_a_promotion_is_told_in_its_run_and_changes_the_record(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        ended = await world.live("1.0.0", channel="stable")
        assert ended.outputs is not None
        assert ended.outputs["record"] == {
            "agentId": AGENT, "version": "1.0.0", "state": "active", "channels": ["stable"],
        }  # fmt: skip
        assert await world.told(ended.run_id) == [
            (
                "authorization.decided",
                {"principal": "alice", "action": "deploy:promote", "resource": AGENT, "allowed": True},
            ),
            ("deployment.promoted", {"agentId": AGENT, "toVersion": "1.0.0", "toState": "active", "channel": "stable"}),
        ]
        assert await world.deployments.pinned(TENANT, AGENT, "stable", "run_x") == "1.0.0"
        with pytest.raises(Problem) as caught:
            await world.deployments.pinned("other", AGENT, "stable", "run_y")
        assert caught.value.key == "no_active_deployment"


async def test_m5_a_run_keeps_its_version_when_the_channel_moves(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        await world.live("1.0.0", channel="stable")
        assert await world.deployments.pinned(TENANT, AGENT, "stable", "run_x") == "1.0.0"
        await world.live("2.0.0", channel="stable")
        assert await world.deployments.pinned(TENANT, AGENT, "stable", "run_x") == "1.0.0"
        assert await world.deployments.pinned(TENANT, AGENT, "stable", "run_y") == "2.0.0"


async def test_a_version_that_is_not_installed_is_not_promoted(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        with pytest.raises(Problem) as caught:
            await world.move("9.9.9", "promote")
        assert caught.value.key == "not_found"


async def test_m3_without_the_scope_nothing_changes_and_the_denial_is_on_record(tmp_path: Path) -> None:
    async with World(tmp_path).open() as world:
        ended = await world.move("1.0.0", "promote", ["deploy:pause", "runs:create"])
        assert ended.error is not None and ended.error.code == "forbidden"
        ((type, payload),) = await world.told(ended.run_id)
        assert (type, payload["allowed"]) == ("authorization.decided", False)
        assert await world.states() == {}


async def test_m3_who_starts_the_workflow_by_hand_gets_nothing(tmp_path: Path) -> None:
    """The right to create runs is no right to deploy."""
    async with World(tmp_path).open() as world:
        inputs = {"agentId": AGENT, "transition": {"version": "1.0.0", "transition": "promote"}}
        made = await world.runs.create_run(CreateRun(workflow_id=WORKFLOW["id"], inputs=inputs), TENANT, "mallory")
        ended = await world.runs.wait(made.run_id, TENANT)
        assert ended.error is not None and ended.error.code == "forbidden"
        assert await world.states() == {}


@pytest.mark.parametrize(
    ("gate", "run", "passes"),
    [
        (DeploymentGate(evaluation=True), "run_good", True),
        (DeploymentGate(evaluation=True), "run_bad", False),
        (DeploymentGate(evaluation=True), "run_other", False),
        (DeploymentGate(evaluation=True), "run_older", False),
        (DeploymentGate(evaluation=True), "run_unknown", False),
        (DeploymentGate(evaluation=True), None, False),
        (DeploymentGate(pass_score=0.95), "run_good", False),
        (DeploymentGate(pass_score=0.3), "run_bad", True),
        (DeploymentGate(agent="other.*", evaluation=True), None, True),
    ],
)
async def test_m1_an_evaluation_must_have_passed(
    tmp_path: Path, gate: DeploymentGate, run: str | None, passes: bool
) -> None:
    async with World(tmp_path, gate).open() as world:
        ended = await world.live("1.0.0", channel="stable", eval_run_id=run)
        assert (await world.states()) == {"1.0.0": "active" if passes else "staged"}
        if not passes:
            assert ended.error is not None and ended.error.code == "eval_gate_unmet"
            assert "deployment.promoted" not in [type for type, _ in await world.told(ended.run_id)]


@pytest.mark.parametrize("action", ["accept", "reject"])
async def test_m1_a_person_must_approve_and_the_question_outlives_the_host(tmp_path: Path, action: str) -> None:
    world = World(tmp_path, DeploymentGate(approval=True))
    async with world.open():
        for _ in range(3):
            await world.move("1.0.0", "promote")
        wanted = Transition("1.0.0", "promote", channel="stable")
        made = await world.deployments.request(TENANT, AGENT, wanted, principal="alice", scopes=ALL)
        async for event in world.runs.follow(made.run_id, TENANT):
            if event.type == "interrupt.requested":
                break
        assert await world.states() == {"1.0.0": "staged"}
    async with world.open():
        answer = {"resumeValue": {"action": action}}
        await world.runs.resolve_by_node(made.run_id, "transition", TENANT, answer, "bob")
        ended = await world.runs.wait(made.run_id, TENANT)
        (record,) = await world.deployments.listed(TENANT, AGENT)
        told = dict(await world.told(made.run_id))
        if action == "accept":
            assert (ended.status, record.state) == ("completed", "active")
            assert told["deployment.promoted"]["approvalGateId"] == record.approval_gate_id
            assert record.approval_gate_id
        else:
            assert (ended.status, record.state, "deployment.promoted" in told) == ("failed", "staged", False)


async def test_m2_a_transition_is_made_once_though_its_run_dies_at_any_record(tmp_path: Path) -> None:
    """Cut the ledger after each record of the last promotion and open it again: the same end, one rung up."""
    world = World(tmp_path / "whole")
    async with world.open():
        await world.move("1.0.0", "promote")
        before = await world.ledger.position()
        last = await world.move("1.0.0", "promote")
        lines = [line async for line in world.ledger.export("")]
    for kept in range(before + 3, len(lines) + 1):  # the run is there with its decision
        folder = tmp_path / f"cut-{kept}"
        cut = World(folder)
        folder.mkdir()
        async with CountedLedger.open(folder / "l.db", projections=projections(), clock=cut.clock) as ledger:
            await ledger.import_lines(lines[:kept])
        async with cut.open():
            ended = await cut.runs.wait(last.run_id, TENANT)
            assert ended.status == "completed", kept
            assert await cut.states() == {"1.0.0": "test"}, kept
            assert [type for type, _ in await cut.told(last.run_id)].count("deployment.promoted") == 1
        shutil.rmtree(folder)


async def test_m4_a_canary_under_its_bar_goes_back_by_an_ordinary_transition(tmp_path: Path) -> None:
    async with World(tmp_path, DeploymentGate(auto_rollback=0.8)).open() as world:
        await world.live("1.0.0", channel="stable")
        await world.live("2.0.0", channel="stable", canary_percent=20)
        assert await world.deployments.observed(TENANT, AGENT, "2.0.0", 0.81) is None
        assert await world.deployments.observed(TENANT, AGENT, "1.0.0", 0.1) is None  # no canary: people decide
        made = await world.deployments.observed(TENANT, AGENT, "2.0.0", 0.79)
        assert made is not None
        await world.runs.wait(made.run_id, TENANT)
        assert await world.states() == {"1.0.0": "active", "2.0.0": "rolled-back"}
        told = dict(await world.told(made.run_id))
        assert told["deployment.rolled-back"] == {
            "agentId": AGENT, "fromVersion": "2.0.0", "toVersion": "1.0.0", "rollbackPointer": "1.0.0",
            "reason": "live-shadow-score",
        }  # fmt: skip
