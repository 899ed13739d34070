"""What a run hides: sensitive values, other tenants' runs (H1)."""

from __future__ import annotations

import pytest

from forestay.kernel import Problem
from forestay.runs.types import RunFilter
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, node, start, workflow


async def test_sensitive_values_work_inside_and_are_masked_outside(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w",
            [node("t", "core.transform", config={"outputs": {"size": "size(variables.password)"}})],
            variables=[{"name": "password", "type": "string", "sensitive": True}],
        )
        run_id = await start(runs, document, {"password": "hunter22"})
        run = await runs.get_run(run_id, "acme")
        assert run.outputs == {"size": 8}
        assert run.variables["password"] == "[REDACTED]"
        for event in await runs.events(run_id, "acme"):
            assert "hunter22" not in str(event.payload)
        assert "hunter22" not in str(await runs.debug_bundle(run_id, "acme"))
        assert await runs.query(run_id, "acme", "variables.password") == "[REDACTED]"
        assert await runs.query(run_id, "acme", "password") == "[REDACTED]"


async def test_another_tenant_sees_nothing(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, workflow("w", [node("g", "core.approvalGate")]))
        for call in (
            runs.get_run(run_id, "other"),
            runs.events(run_id, "other"),
            runs.cancel(run_id, "other"),
            runs.interrupts(run_id, "other"),
            runs.query(run_id, "other", "status"),
            runs.debug_bundle(run_id, "other"),
        ):
            with pytest.raises(Problem) as refused:
                await call
            assert refused.value.row.http == 404
        assert (await runs.list_runs(RunFilter(), "other")).runs == []


async def test_sensitive_outputs_are_masked_outside_and_work_inside(host: Host) -> None:
    async with host() as runs:
        secret, shown = ({"type": "static", "value": text} for text in ("hunter22", "anybody"))
        document = workflow(
            "w",
            [
                node("a", "core.identity", inputs={"pin": secret, "open": shown}, outputSensitivity={"pin": True}),
                node("b", "core.transform", config={"outputs": {"size": "size(nodes.a.output.pin)"}}),
            ],
            [edge("a", "b"), edge("a", "last", sourceOutput="pin")],
        )
        document["nodes"].append(node("last", "core.identity", outputSensitivity={"input": True}))
        run_id = await start(runs, document)
        run = await finish(runs, run_id)
        assert run.outputs == {"b": {"size": 8}, "last": {"input": "[REDACTED]"}}
        assert await runs.query(run_id, "acme", "nodes.a.output") == {"pin": "[REDACTED]", "open": "anybody"}
        completed = [e.payload["outputs"] for e in await runs.events(run_id, "acme") if e.type == "node.completed"]
        assert completed[0]["pin"] == "[REDACTED]"
