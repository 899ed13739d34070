"""`forestay worker`, `up --no-worker`, `fleet` and `migrate`, each as the process that people start."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from forestay.kernel import Ledger
from forestay.runs import Outbox
from tests.forked import forestay
from tests.host.hosts import KEY, SECRET, HostProcess, until
from tests.postgres import new_ledger
from tests.runs.documents import edge, node, workflow

GATED = workflow("gated", [node("gate", "core.approvalGate"), node("last")], [edge("gate", "last")])
YES = {"resumeValue": {"action": "accept"}}


def command(folder: Path, *words: str) -> tuple[int, Any]:
    """What a command answers, and the number that it ends with."""
    environment = {**os.environ, "FORESTAY_SECRET": SECRET, "HOME": str(folder)}
    done = forestay(folder, *words, "--json", environ=environment)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def ledger() -> str:
    return new_ledger()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, ledger: str) -> Iterator[list[HostProcess]]:
    """A host that carries no runs, and two workers."""
    folder = tmp_path_factory.mktemp("fleet")
    api = HostProcess(folder / "api", ledger, "--no-worker")
    workers = [HostProcess(folder / name, ledger, command="worker") for name in ("one", "two")]
    try:
        assert [item.said["name"] for item in (api, *workers)]
        api.ask("PUT", "/v1/workflows/gated", GATED)
        yield [api, *workers]
    finally:
        for item in (api, *workers):
            item.close()


def carried(folder: Path, ledger: str) -> dict[str, int]:
    """How many runs each living process carries."""
    _, answer = command(folder, "fleet", "--database", ledger)
    return {item["name"]: item["carries"] for item in answer["result"]["workers"] if item["alive"]}


def test_workers_carry_what_the_host_takes_in_and_hand_it_over(
    tmp_path: Path, fleet: list[HostProcess], ledger: str
) -> None:
    api, one, two = fleet
    runs = [api.ask("POST", "/v1/runs", {"workflowId": "gated"})["runId"] for _ in range(6)]
    for run_id in runs:
        until(lambda run_id=run_id: api.ask("GET", f"/v1/runs/{run_id}")["status"] == "waiting-approval")
    standing = carried(tmp_path, ledger)
    assert standing.pop(api.said["name"]) == 0
    assert standing.keys() == {one.said["name"], two.said["name"]} and sum(standing.values()) == 6
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(20) == 0
    for run_id in runs:
        api.ask("POST", f"/v1/runs/{run_id}/interrupts/gate", YES)
        until(lambda run_id=run_id: api.ask("GET", f"/v1/runs/{run_id}")["status"] == "completed")
    assert one.said["name"] not in carried(tmp_path, ledger)
    # What a process tells of itself is there with its next beat.
    until(lambda: "2 processes, 1 of them serve callers" in api.client.get("/host/v1/health").text)


def test_a_worker_needs_a_ledger_that_is_shared(tmp_path: Path) -> None:
    for words in (["worker"], ["fleet"], ["migrate"], ["up", "--no-worker", "--port", "0"]):
        code, answer = command(tmp_path, *words)
        assert code != 0 and answer["error"]["details"]["at"] in ("--database", "--no-worker"), answer


def test_nobody_shares_a_ledger_that_no_host_has_opened(tmp_path: Path) -> None:
    code, answer = command(tmp_path, "fleet", "--database", new_ledger())
    assert code == 0 and answer["result"] == {"workers": [], "events": []}


def test_the_former_name_of_the_flag_is_read(tmp_path: Path, ledger: str) -> None:
    found = [command(tmp_path, "migrate", "--check", flag, ledger)[1]["result"] for flag in ("--database", "--ledger")]
    assert found[0] == found[1] and not found[0]["migrated"]


def test_tables_change_only_while_no_other_version_has_them_open(
    tmp_path: Path, fleet: list[HostProcess], ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forestay.kernel import Problem

    code, answer = command(tmp_path, "migrate", "--check", "--database", ledger)
    found = answer["result"]["found"]
    assert code == 0 and found["schema"] == found["needed"] and not found["tables"] and found["living"]
    monkeypatch.setattr(Outbox, "version", Outbox.version + 1)
    with pytest.raises(Problem) as refused:
        Ledger.open(ledger, projections=[Outbox()])
    assert refused.value.key == "state_conflict" and refused.value.details["tables"] == ["webhooks"]
    monkeypatch.setattr(Outbox, "version", Outbox.version - 2)
    with pytest.raises(Problem) as old:
        Ledger.open(ledger, projections=[Outbox()])
    assert old.value.key == "migration_unsupported"
    fleet[0].ask("POST", "/v1/runs", {"workflowId": "gated"})  # nothing was changed under the hosts


def test_migrate_makes_a_new_ledger_ready(tmp_path: Path) -> None:
    ledger = new_ledger()
    _, before = command(tmp_path, "migrate", "--check", "--database", ledger)
    assert before["result"]["found"]["schema"] == 0 and "runs" in before["result"]["found"]["tables"]
    command(tmp_path, "migrate", "--database", ledger)
    _, after = command(tmp_path, "migrate", "--check", "--database", ledger)
    assert after["result"]["found"]["schema"] > 0 and not after["result"]["found"]["tables"]


def test_the_console_shows_who_shares_the_ledger(fleet: list[HostProcess]) -> None:
    api, left, other = fleet
    with httpx.Client(base_url=api.said["url"], timeout=30) as visitor:
        assert visitor.post("/login", data={"key": KEY}).status_code == 303
        page = visitor.get("/fleet").text
    living, told = page.split('aria-label="Events"')
    assert api.said["name"] in living and other.said["name"] in living and "this one" in living
    assert left.said["name"] not in living, "it has handed over what it carried"
    assert left.said["name"] in told and '<td data-label="What">left</td>' in told
