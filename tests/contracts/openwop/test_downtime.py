"""A host that is killed and comes back later ends its runs as it would have (W16)."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, LocalHost


def document(id: str, nodes: list[tuple[str, dict[str, Any]]], timeout: int) -> dict[str, Any]:
    """A chain of nodes in a run that may take `timeout` milliseconds."""
    names = [f"n{index}" for index in range(len(nodes))]
    parts = [
        {"id": name, "typeId": type, "name": name, "position": {"x": 0, "y": 0}, "config": config, "inputs": {}}
        for name, (type, config) in zip(names, nodes, strict=True)
    ]
    links = [{"id": f"{a}-{b}", "sourceNodeId": a, "targetNodeId": b} for a, b in pairwise(names)]
    triggers = [{"id": "manual", "type": "manual"}]
    body = {"id": id, "name": id, "version": "1.0.0", "nodes": parts, "edges": links, "triggers": triggers}
    return {**body, "variables": [], "metadata": {}, "settings": {"timeout": timeout}}


DELAY, GATE = "core.delay", "core.approvalGate"
CASES = {
    "delay": ([(DELAY, {"delayMs": 300})], 600, "completed"),
    "chain": ([(DELAY, {"delayMs": 300}), (DELAY, {"delayMs": 200})], 600, "completed"),
    "long": ([(DELAY, {"delayMs": 300}), (DELAY, {"delayMs": 400})], 600, "failed"),
    "gate": ([(GATE, {"timeoutMs": 300, "onTimeout": "accept"})], 600, "completed"),
}


@pytest.mark.skipif("FORESTAY_CONTRACT_URL" in os.environ, reason="this kills its host")
def test_w16_a_kill_changes_no_outcome(tmp_path: Path) -> None:
    """A new process takes longer to start than the runs may take: all their deadlines are overdue."""
    host = LocalHost(tmp_path / "data")
    api = Api(host.start(), host.keys)
    runs = {}
    for name, (nodes, timeout, _) in CASES.items():
        assert api.http.put(f"/v1/workflows/{name}", json=document(name, nodes, timeout)).status_code == 201
        runs[name] = str(api.post("/v1/runs", {"workflowId": name}).json()["runId"])
    assert host.process is not None and host.process.stdout is not None
    host.process.kill()
    host.process.wait()
    host.process.stdout.close()
    api.close()
    api = Api(host.start(), host.keys)
    try:
        assert {name: api.wait(run_id)["status"] for name, run_id in runs.items()} == {
            name: status for name, (_, _, status) in CASES.items()
        }
    finally:
        api.close()
        host.stop()
