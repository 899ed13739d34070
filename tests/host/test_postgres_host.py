"""A real host process on PostgreSQL: started by the command, killed, and started again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from forestay.kernel import Ledger
from tests.forked import forestay
from tests.host.hosts import hosts, until
from tests.postgres import new_ledger
from tests.runs.documents import edge, node, workflow

DOCUMENT = workflow(
    "w",
    [node("gate", "core.approvalGate"), node("last", "core.noop")],
    [edge("gate", "last")],
)


def test_a_killed_host_goes_on_from_postgresql(tmp_path: Path) -> None:
    ledger = new_ledger()
    with hosts(tmp_path, ledger, 1) as (host,):
        host.ask("PUT", "/v1/workflows/w", DOCUMENT)
        run_id = host.ask("POST", "/v1/runs", {"workflowId": "w"})["runId"]
        until(lambda: host.ask("GET", f"/v1/runs/{run_id}")["status"] == "waiting-approval")
        host.kill()
    with hosts(tmp_path, ledger, 1) as (host,):
        assert host.ask("GET", f"/v1/runs/{run_id}")["status"] == "waiting-approval"
        host.ask("POST", f"/v1/runs/{run_id}/interrupts/gate", {"resumeValue": {"action": "accept"}})
        until(lambda: host.ask("GET", f"/v1/runs/{run_id}")["status"] == "completed")
    assert not list(tmp_path.rglob("ledger.db"))


@pytest.mark.parametrize("given", ["setting", "FORESTAY_DATABASE", "FORESTAY_DATA_LEDGER"])
def test_commands_read_the_ledger_of_the_settings(tmp_path: Path, given: str) -> None:
    ledger = new_ledger()
    Ledger.open(ledger).close()
    environment = {**os.environ, "HOME": str(tmp_path)}
    if given == "setting":
        (tmp_path / "forestay.toml").write_text(f'[data]\nledger = "{ledger}"\n')
    else:
        environment[given] = ledger
    done = forestay(tmp_path, "ledger", "verify", "--json", environ=environment)
    assert json.loads(done.stdout)["result"]["records"] == 0, done.stderr
