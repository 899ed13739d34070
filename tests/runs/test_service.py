"""The rest of the service: requests, lists, streams, bundles, ancestry."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from forestay.kernel import Problem
from forestay.runs.types import CreateRun, ForkRequest, Limits, RunFilter
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, node, start, workflow
from tests.runs.events import CONTRACT


@pytest.mark.parametrize(
    ("fields", "status", "at"),
    [
        ({}, 400, "$.workflowId"),
        ({"workflow_id": "nope"}, 404, None),
        ({"workflow_id": "../x"}, 404, None),
        ({"workflow_id": "w", "tenant_id": "other"}, 403, "$.tenantId"),
        ({"workflow_id": "w", "tags": ["t"] * 101}, 400, "$.tags"),
        ({"workflow_id": "w", "tags": [""]}, 400, "$.tags[0]"),
        ({"workflow_id": "w", "scope_id": "s" * 257}, 400, "$.scopeId"),
        ({"workflow_id": "w", "inputs": {"big": "x" * 1_100_000}}, 413, "$.inputs"),
        ({"workflow_id": "w", "inputs": {"nul": "\0"}}, 400, None),
        ({"workflow_id": "w", "inputs": {"n": "one"}}, 400, "$.inputs.n"),
        ({"workflow_id": "w", "configurable": {"recursionLimit": 0}}, 400, "$.configurable.recursionLimit"),
        ({"workflow_id": "w", "configurable": {"recursionLimit": True}}, 400, "$.configurable.recursionLimit"),
        ({"workflow_id": "w", "configurable": {"temperature": 3}}, 400, "$.configurable.temperature"),
        ({"workflow_id": "w", "configurable": {"unknown": 1}}, 400, "$.configurable"),
        ({"workflow_id": "w", "configurable": {"mockProvider": {"id": "x"}}}, 403, "$.configurable.mockProvider"),
        ({"workflow_id": "needs"}, 400, "$.inputs.must"),
        ({"workflow_id": "w", "mode": "eval"}, 501, None),
    ],
)
async def test_a_bad_request_is_refused_with_its_place(host: Host, fields: Any, status: int, at: str | None) -> None:
    schema = {
        "type": "object",
        "properties": {"recursionLimit": {"type": "integer"}, "temperature": {}, "mockProvider": {}},
        "additionalProperties": False,
    }
    async with host() as runs:
        document = workflow("w", [node("a")], variables=[{"name": "n", "type": "number"}], configurableSchema=schema)
        await runs.put_workflow(document, tenant=None)
        needs = workflow("needs", [node("a")], variables=[{"name": "must", "type": "string", "required": True}])
        await runs.put_workflow(needs, tenant=None)
        with pytest.raises(Problem) as refused:
            await runs.create_run(CreateRun(**fields), "acme")
        assert refused.value.row.http == status
        if at is not None:
            assert refused.value.details["at"] == at
        assert (await runs.list_runs(RunFilter(), "acme")).runs == []


async def test_a_run_may_ask_for_less_than_the_hosts_limit_and_never_for_more(host: Host) -> None:
    async with host(limits=Limits(max_node_executions=2)) as runs:
        chain = workflow("w", [node("a"), node("b"), node("c")], [edge("a", "b"), edge("b", "c")])
        run = await finish(runs, await start(runs, chain, configurable={"recursionLimit": 1000}))
        assert run.error is not None and run.error.code == "recursion_limit_exceeded"


async def test_lists_are_filtered_and_paged(host: Host) -> None:
    async with host() as runs:
        done = [await start(runs, workflow("w", [node("a")]), tags=[f"t{i % 2}"]) for i in range(5)]
        held = await start(runs, workflow("g", [node("a", "core.approvalGate")]), scope_id="s")
        seen: list[str] = []
        cursor = None
        while True:
            page = await runs.list_runs(RunFilter(), "acme", cursor, 2)
            seen.extend(item.run_id for item in page.runs)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == [held, *reversed(done)]

        async def found(**fields: Any) -> list[str]:
            return [item.run_id for item in (await runs.list_runs(RunFilter(**fields), "acme")).runs]

        assert await found(status=["waiting-approval"]) == [held]
        assert await found(status=["completed", "failed"]) == list(reversed(done))
        assert await found(workflow_id="g") == [held]
        assert await found(scope_id="s") == [held]
        assert await found(tag="t1") == [done[3], done[1]]
        assert await found(created_after="2100-01-01T00:00:00Z") == []
        assert len(await found(created_before="2100-01-01T00:00:00Z")) == 6
        for bad in ("x", "!!", "eyJ4IjoxfQ", "eyJiZWZvcmUiOm51bGx9", "W10", "é"):
            with pytest.raises(Problem):
                await runs.list_runs(RunFilter(), "acme", bad)
        for limit in (0, 201):
            with pytest.raises(Problem):
                await runs.list_runs(RunFilter(), "acme", None, limit)


@pytest.mark.parametrize("mode", ["replay", "branch"])
async def test_k4_a_fork_whose_answer_was_lost_is_told_again(host: Host, mode: Any) -> None:
    async with host() as runs:
        source = await start(runs, workflow("w", [node("a")]))
        await finish(runs, source)
        asked = ForkRequest(mode=mode, from_seq=0)
        made, again = [await runs.fork(source, "acme", asked, fork_id="run_reserved") for _ in range(2)]
        assert made.run_id == again.run_id == "run_reserved"
        assert len((await runs.list_runs(RunFilter(), "acme")).runs) == 2


async def test_bulk_cancel_answers_in_order(host: Host) -> None:
    async with host() as runs:
        held = await start(runs, workflow("g", [node("a", "core.approvalGate")]))
        results = await runs.bulk_cancel([held, "run_none", held], "acme")
        assert [(item.ok, item.status) for item in results] == [(True, "cancelled"), (False, None), (True, "cancelled")]
        assert results[1].error is not None and results[1].error["code"] == "not_found"
        for ids in ([], ["x"] * 101):
            with pytest.raises(Problem) as refused:
                await runs.bulk_cancel(ids, "acme")
            assert refused.value.details["maxRunIds"] == 100


@pytest.mark.parametrize("run_id", ["", "x", "../../etc", "run_" + "x" * 500, "run_é", "run/1", "a\0b"])
async def test_a_run_id_that_is_none_is_not_found(host: Host, run_id: str) -> None:
    async with host() as runs:
        with pytest.raises(Problem) as refused:
            await runs.get_run(run_id, "acme")
        assert refused.value.row.http == 404


async def test_the_bundle_holds_no_secret_and_has_the_contracts_shape(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w", [node("a", "core.identity", inputs={"apiKey": {"type": "static", "value": "sk-secret-1"}})]
        )
        run_id = await start(runs, document, {"password": "hunter22"})
        await finish(runs, run_id)
        bundle = await runs.debug_bundle(run_id, "acme")
        assert bundle["bundleVersion"] == "1.0"
        text = json.dumps(bundle)
        assert "hunter22" not in text and "sk-secret-1" not in text
        file = CONTRACT / "schemas" / "debug-bundle.schema.json"
        if file.exists():
            jsonschema.validate(bundle, json.loads(file.read_text()))


async def test_ancestry_names_the_parent(host: Host) -> None:
    async with host() as runs:
        await runs.put_workflow(workflow("child", [node("n")]), tenant=None)
        document = workflow("w", [node("s", "core.subWorkflow", config={"workflowId": "child"})])
        run_id = await start(runs, document)
        run = await finish(runs, run_id)
        assert run.outputs is not None
        child = await runs.ancestry(run.outputs["childRunId"], "acme")
        assert child.parent == {"runId": run_id, "hostId": "host", "cause": "core.subWorkflow"}
        assert (await runs.ancestry(run_id, "acme")).parent is None
        listed = await runs.list_runs(RunFilter(parent_run_id=run_id), "acme")
        assert [item.run_id for item in listed.runs] == [run.outputs["childRunId"]]


async def test_following_an_ended_run_ends(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("a")]))
        assert [event.sequence async for event in runs.follow(run_id, "acme", 2)] == [2, 3]
        assert [event async for event in runs.follow(run_id, "acme", 4)] == []
        with pytest.raises(Problem):
            async for _ in runs.follow("run_none", "acme"):
                pass
        assert msgspec.json.encode(await runs.get_run(run_id, "acme"))


def test_the_page_of_node_types_names_every_type() -> None:
    from pathlib import Path

    from forestay.runs.nodes.core import standard_registry

    page = (Path(__file__).parents[2] / "docs/reference/node-types.md").read_text()
    usual = {item.type_id: item for item in standard_registry(sample_seams=False, custom=False)}
    for seam in standard_registry(sample_seams=True, custom=False):
        item = usual.get(seam.type_id, seam)
        assert f"`{item.type_id}`" in page, item.type_id
        row = next((line for line in page.splitlines() if line.startswith(f"| `{item.type_id}`")), "")
        assert not row or ("(instant)" in row) == item.inline, item.type_id
        for name in item.requires:
            assert not row or f"needs `{name}`" in row
