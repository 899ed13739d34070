"""The roster and the org chart (R1 to R4, T1 to T4), pure and on a real ledger."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.agents import Catalogue, parse
from forestay.governance import AgentDirectory, OrgChart, RosterEntry, Staff, read_chart, responsibilities
from forestay.kernel import Ids, Ledger, Problem, SeededRandomness, mistakes, scope_policy, scope_request
from forestay.runs import RunFilter, Runs, projections
from tests.runs.documents import node, workflow
from tests.runs.patient import CountedLedger, PatientClock

TENANT = "acme"
AGENT = "vendor.acme.support"
ENTRY: dict[str, Any] = {
    "rosterId": "host:sally",
    "persona": "Sally",
    "agentRef": {"agentId": AGENT, "channel": "stable"},
    "owner": {"tenantId": TENANT},
    "workflows": ["answer"],
}


def entry(name: str, **fields: Any) -> dict[str, Any]:
    return {**ENTRY, "rosterId": f"host:{name}", **fields}


def _role(department: str) -> dict[str, str]:
    return {"roleId": f"r-{department}", "name": "Worker"}


def placed(name: str, department: str, role: str = "r-d", boss: str | None = None, **more: Any) -> dict[str, Any]:
    member = {"rosterId": name, "departmentId": department, "roleId": role, "reportsTo": boss, **more}
    return {"members": [member]}


def chart(departments: dict[str, str | None], members: dict[str, tuple[str, str | None]]) -> dict[str, Any]:
    """Departments with their parents, members with their department and whom they report to."""
    return {
        "owner": {"tenantId": TENANT},
        "departments": [
            {"departmentId": name, "name": name, "parentDepartmentId": parent, "roles": [_role(name)]}
            for name, parent in departments.items()
        ],
        "members": [
            {"rosterId": name, "departmentId": place, "roleId": f"r-{place}", "reportsTo": boss}
            for name, (place, boss) in members.items()
        ],
    }


def roster(*names: str) -> dict[str, RosterEntry]:
    return {f"host:{name}": msgspec.convert(entry(name, workflows=[f"w-{name}", "all"]), RosterEntry) for name in names}


def directory(ledger: Ledger) -> AgentDirectory:
    """One that knows the agent of the entries."""
    manifest = {"agentId": AGENT, "persona": "Support", "modelClass": "general", "systemPrompt": "Help."}
    return AgentDirectory(ledger, Catalogue([parse(manifest)]))


@asynccontextmanager
async def staff(folder: Path) -> AsyncIterator[tuple[Staff, Runs]]:
    clock = PatientClock()
    ids = Ids(clock, SeededRandomness(1))
    async with CountedLedger.open(folder / "l.db", projections=projections(), clock=clock, ids=ids) as ledger:
        runs = Runs(ledger, clock=clock, ids=ids, randomness=SeededRandomness(1), secret=b"s" * 32)
        async with runs:
            for name in ("answer", "report"):
                await runs.put_workflow(workflow(name, [node("n")]), tenant=None)
            yield Staff(ledger, directory(ledger), runs=lambda: runs), runs


_parents = st.lists(st.integers(-1, 7), min_size=1, max_size=8)


@given(_parents)
def test_r2_a_chart_is_refused_exactly_when_it_has_a_circle(parents: list[int]) -> None:
    names = [f"host:m{at}" for at in range(len(parents))]
    bosses = [None if at < 0 or at >= len(parents) else names[at] for at in parents]
    document = chart({"d": None}, {name: ("d", boss) for name, boss in zip(names, bosses, strict=True)})
    above = dict(zip(names, bosses, strict=True))

    def circles(name: str) -> bool:  # more steps than members lead somewhere twice
        place: str | None = name
        for _ in range(len(names) + 1):
            if place is None:
                return False
            place = above[place]
        return True

    known = roster(*(f"m{at}" for at in range(len(parents))))
    if any(circles(name) for name in names):
        with pytest.raises(Problem):
            read_chart(document, TENANT, known)
    else:
        assert len(read_chart(document, TENANT, known).members) == len(names)


@pytest.mark.parametrize(
    ("change", "at"),
    [
        (placed("host:nobody", "d"), ".rosterId"),
        (placed("host:a", "x"), ".departmentId"),
        (placed("host:a", "d", "x"), ".roleId"),
        (placed("host:a", "d", boss="host:b"), ".reportsTo"),
        (placed("host:a", "d", scopes=["*"]), "$"),
        ({"authority": True}, "$"),
        ({"owner": {"tenantId": "other"}}, "tenantId"),
    ],
)
def test_r2_r3_a_chart_names_what_is_there_and_has_no_authority(change: dict[str, Any], at: str) -> None:
    document = chart({"d": None}, {"host:a": ("d", None)})
    read_chart(document, TENANT, roster("a"))
    with pytest.raises(Problem) as caught:
        read_chart({**document, **change}, TENANT, roster("a"))
    assert at in str(caught.value.details["at"])


def test_a_department_is_responsible_for_what_its_members_and_those_under_it_are() -> None:
    document = chart(
        {"top": None, "mid": "top", "low": "mid", "other": None},
        {"host:a": ("top", None), "host:b": ("low", "host:a"), "host:c": ("other", None)},
    )
    known = roster("a", "b", "c")
    made = read_chart(document, TENANT, known)
    whole = responsibilities(made, known, "top")
    assert whole.responsibilities == ["w-a", "all", "w-b"]
    assert [item.roster_id for item in whole.members] == ["host:a", "host:b"]
    assert responsibilities(made, known, "top", recursive=False).responsibilities == ["w-a", "all"]


@pytest.mark.parametrize(
    "change",
    [
        {"rosterId": "sally"},
        {"agentRef": {"agentId": "acme.x", "version": "1", "channel": "stable"}},
        {"owner": {"tenantId": "other"}},
        {"workflows": ["answer", "answer"]},
        {"workflows": ["unknown"]},
        {"permissions": ["*"]},
        {"persona": ""},
    ],
)
async def test_r1_an_entry_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    async with staff(tmp_path) as (made, _):
        with pytest.raises(Problem):
            await made.put(TENANT, {**ENTRY, **change})
        assert await made.listed(TENANT) == []


async def test_t1_a_tenant_sees_its_own_roster_only(tmp_path: Path) -> None:
    async with staff(tmp_path) as (made, _):
        for name in ("zoe", "anna", "max"):
            await made.put(TENANT, entry(name))
        await made.put(TENANT, entry("max", persona="Maximilian"))
        assert [item.roster_id for item in await made.listed(TENANT)] == ["host:anna", "host:max", "host:zoe"]
        assert [item.persona for item in await made.listed(TENANT, "host:anna", 1)] == ["Maximilian"]
        assert await made.listed("other") == []
        with pytest.raises(Problem) as caught:
            await made.get("other", "host:max")
        assert caught.value.key == "not_found"
        await made.put_chart(TENANT, chart({"d": None}, {"host:max": ("d", None)}))
        assert (await made.chart("other")).members == ()
        with pytest.raises(Problem):  # T4
            await made.remove(TENANT, "host:max")
        await made.remove(TENANT, "host:zoe")
        assert len(await made.listed(TENANT)) == 2


async def test_t2_a_run_is_attributed_right_behind_its_start(tmp_path: Path, reference: Path) -> None:
    async with staff(tmp_path) as (made, runs):
        await made.put(TENANT, ENTRY)
        run = await made.fire(TENANT, "host:sally", "answer", "schedule", subscription_id="sub_1")
        await made.put(TENANT, {**ENTRY, "persona": "Renamed"})
        events = (await runs.poll(run.run_id, TENANT, -1, 0)).events
        assert [event.type for event in events[:2]] == ["run.started", "roster.run.initiated"]
        assert events[1].payload["persona"] == "Sally"
        schemas = json.loads((reference / "schemas" / "run-event-payloads.schema.json").read_text("utf-8"))["$defs"]
        assert mistakes(schemas["rosterRunInitiated"], events[1].payload) == []
        known = json.loads((reference / "schemas" / "agent-roster-entry.schema.json").read_text("utf-8"))
        assert mistakes(known, msgspec.to_builtins(await made.get(TENANT, "host:sally"))) == []


@pytest.mark.parametrize(("change", "flow", "key"), [
    ({"enabled": False}, "answer", "state_conflict"),
    ({}, "report", "permission_denied"),
])  # fmt: skip
async def test_t3_a_member_starts_its_own_work_and_none_while_it_rests(
    tmp_path: Path, change: dict[str, Any], flow: str, key: str
) -> None:
    async with staff(tmp_path) as (made, runs):
        await made.put(TENANT, {**ENTRY, **change})
        with pytest.raises(Problem) as caught:
            await made.fire(TENANT, "host:sally", flow, "queue")
        assert caught.value.key == key
        assert await made.listed(TENANT)
        assert (await runs.list_runs(RunFilter(), TENANT)).runs == []


async def test_r3_the_head_of_everything_may_do_no_more_than_before(tmp_path: Path) -> None:
    """The policy's answers about a member are the same before and after it is put above everybody."""
    asked = ["deploy:promote", "runs:create", "approvals:respond"]

    def answers() -> list[str]:
        policy = scope_policy("host:a", ["runs:read"], TENANT)
        return [policy.decide(scope_request("host:a", scope, TENANT)).effect for scope in asked]

    async with staff(tmp_path) as (made, _):
        for name in ("a", "b"):
            await made.put(TENANT, entry(name, workflows=[] if name == "a" else ["answer"]))
        before = answers()
        drawn = await made.put_chart(TENANT, chart({"d": None}, {"host:a": ("d", None), "host:b": ("d", "host:a")}))
        assert isinstance(drawn, OrgChart)
        assert answers() == before == ["deny"] * 3
        with pytest.raises(Problem):  # nor does a report's portfolio become its manager's
            await made.fire(TENANT, "host:a", "answer", "queue")
