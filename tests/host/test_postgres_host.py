"""A real host process on PostgreSQL: started by the command, killed, started again, and never twice at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from forestay.kernel import Ledger
from tests.postgres import new_ledger
from tests.runs.documents import edge, node, workflow

KEY = "hk_test_0123456789abcdef0123456789abcdef"
DOCUMENT = workflow(
    "w",
    [node("gate", "core.approvalGate"), node("last", "core.noop")],
    [edge("gate", "last")],
)


@contextmanager
def up(folder: Path, ledger: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A host of its own process, and a client of it."""
    command = [sys.executable, "-P", "-m", "forestay", "up", "--port", "0", "--json", "--ledger", ledger]
    environment = {**os.environ, "FORESTAY_API_KEY": KEY, "HOME": str(folder)}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        url = json.loads(line)["result"]["url"]
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=30) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


def ask(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = client.request(method, path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()


def test_a_killed_host_goes_on_from_postgresql(tmp_path: Path) -> None:
    ledger = new_ledger()
    with up(tmp_path, ledger) as (process, client):
        ask(client, "PUT", "/v1/workflows/w", DOCUMENT)
        run_id = ask(client, "POST", "/v1/runs", {"workflowId": "w"})["runId"]
        while ask(client, "GET", f"/v1/runs/{run_id}")["status"] != "waiting-approval":
            pass
        process.kill()
        process.wait()
    with up(tmp_path, ledger) as (_, client):
        assert ask(client, "GET", f"/v1/runs/{run_id}")["status"] == "waiting-approval"
        ask(client, "POST", f"/v1/runs/{run_id}/interrupts/gate", {"resumeValue": {"action": "accept"}})
        while ask(client, "GET", f"/v1/runs/{run_id}")["status"] != "completed":
            pass
    assert not list(tmp_path.rglob("ledger.db"))


def test_a_second_host_on_one_ledger_is_refused(tmp_path: Path) -> None:
    ledger = new_ledger()
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with up(tmp_path / "one", ledger) as (_, client):
        second = subprocess.run(
            [sys.executable, "-P", "-m", "forestay", "up", "--port", "0", "--json", "--ledger", ledger],
            cwd=tmp_path / "two",
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert json.loads(second.stdout)["error"]["details"]["schema"]
        assert second.returncode != 0
        assert ask(client, "GET", "/v1/runs")["runs"] == []


@pytest.mark.parametrize("given", ["setting", "environment"])
def test_commands_read_the_ledger_of_the_settings(tmp_path: Path, given: str) -> None:
    ledger = new_ledger()
    Ledger.open(ledger).close()
    environment = {**os.environ, "HOME": str(tmp_path)}
    if given == "setting":
        (tmp_path / "forestay.toml").write_text(f'[data]\nledger = "{ledger}"\n')
    else:
        environment["FORESTAY_DATA_LEDGER"] = ledger
    done = subprocess.run(
        [sys.executable, "-P", "-m", "forestay", "ledger", "verify", "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout)["result"]["records"] == 0, done.stderr
