"""`forestay agent`, `eval`, `deploy`, `budget`, `trigger`, `memory`: the real commands, from a pack to a rollback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.test_runs import Shell
from tests.contracts.openwop.conftest import LocalHost

AGENT = "vendor.acme.support"
MANIFEST = {"agentId": AGENT, "persona": "Support", "modelClass": "general", "systemPrompt": "Help."}
MATCH = {"kind": "golden", "match": {"strategy": "regex", "value": ".*"}}
SUITE = {
    "suiteId": "acme.evals.support",
    "version": "1.0.0",
    "modes": ["golden"],
    "tasks": [{"taskId": "hello", "input": "Say hello.", "expected": MATCH}],
}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("agents")
    host = LocalHost(folder / "data")
    url = host.start()
    yield Shell(folder, FORESTAY_URL=url, FORESTAY_API_KEY=host.keys["full"])
    host.stop()


def write(folder: Path, name: str, document: object) -> str:
    (folder / name).write_text(json.dumps(document))
    return f"@{name}"


def test_from_a_pack_to_a_rollback(shell: Shell) -> None:
    for version in ("1.0.0", "2.0.0"):
        pack = {"name": "vendor.acme", "version": version, "agents": [MANIFEST]}
        assert shell("agent", "install", write(shell.folder, "pack.json", pack)).result["agents"] == [AGENT]
    assert AGENT in shell("agent", "list", "--human").out
    assert shell("eval", "put", write(shell.folder, "suite.json", SUITE)).result["tasks"] == 1
    card = shell("eval", "run", "acme.evals.support@1.0.0", AGENT, "--version", "2.0.0")
    assert (card.code, card.result["passed"]) == (0, True)
    assert "passed" in shell("eval", "show", card.result["runId"], "--human").out
    for version in ("1.0.0", "2.0.0"):
        for _ in range(3):
            assert shell("deploy", "promote", AGENT, version).code == 0
        made = shell("deploy", "promote", AGENT, version, "--channel", "stable")
        assert made.result["state"] == "active"
    shell("deploy", "rollback", AGENT, "2.0.0", "--reason", "slow")
    told = shell("deploy", "list", AGENT, "--human").out.splitlines()
    assert [line.split()[:2] for line in told] == [["1.0.0", "active"], ["2.0.0", "rolled-back"]]
    refused = shell("deploy", "pause", AGENT, "2.0.0")
    assert (refused.code, refused.error["code"]) == (7, "E_CONFLICT_VERSION")


def test_members_and_their_chart(shell: Shell) -> None:
    entry = {
        "rosterId": "host:sally",
        "persona": "Sally",
        "agentRef": {"agentId": "core.forestay.assistant"},
        "owner": {"tenantId": "default"},
    }
    assert shell("agent", "hire", write(shell.folder, "sally.json", entry)).result == entry
    assert "Sally" in shell("agent", "roster", "--human").out
    chart = {
        "owner": {"tenantId": "default"},
        "departments": [{"departmentId": "mail", "name": "Mail", "roles": [{"roleId": "w", "name": "Writer"}]}],
        "members": [{"rosterId": "host:sally", "departmentId": "mail", "roleId": "w", "reportsTo": None}],
    }
    assert shell("agent", "org-chart", "--put", write(shell.folder, "chart.json", chart)).code == 0
    assert shell("agent", "org-chart", "--human").out.splitlines() == ["Mail", "  host:sally"]
    assert shell("agent", "dismiss", "host:sally").code != 0, "the chart names her"
    assert shell("budget", "list").result["accounts"] == []


def wait_until_none_is_due(shell: Shell) -> None:
    while shell("trigger", "deliveries", "--state", "due").result["deliveries"]:
        pass


def test_an_event_of_a_queue_and_a_dead_letter(shell: Shell) -> None:
    queue = shell("trigger", "subscribe", "queue", "forestay-ask", "--attempts", "1").result["subscription"]
    name = queue["subscriptionId"]
    assert name in shell("trigger", "list", "--human").out
    sent = shell("trigger", "deliver", name, "e-1", "--inputs", '{"question": "Which day is it?"}')
    assert shell("trigger", "deliver", name, "e-1").result["deliveryId"] == sent.result["deliveryId"]
    bad = shell("trigger", "deliver", name, "e-2").result["deliveryId"]  # it has no question
    wait_until_none_is_due(shell)
    told = {item["deliveryId"]: item["state"] for item in shell("trigger", "deliveries").result["deliveries"]}
    assert told == {sent.result["deliveryId"]: "delivered", bad: "dead"}
    assert shell("trigger", "redrive", bad).code == 0
    wait_until_none_is_due(shell)
    assert "dead" in shell("trigger", "deliveries", "--state", "dead", "--human").out
    assert shell("trigger", "remove", name).code == 0
    hook = shell("trigger", "subscribe", "webhook", "forestay-ask", "--human").out
    assert ":ingest" in hook and "whsec_" in hook
    other = shell("trigger", "list").result["subscriptions"][0]["subscriptionId"]
    assert shell("trigger", "pause", other).result["state"] == "paused"
    assert shell("trigger", "resume", other).result["state"] == "active"


def test_what_is_remembered_is_found_and_forgotten(shell: Shell) -> None:
    for text in ("The Aurora lies at berth 7.", "The Petrel lies at berth 3."):
        body = {"memoryRef": "harbour", "content": text, "tags": ["ship"]}
        answer = httpx.post(
            f"{shell.environment['FORESTAY_URL']}/host/v1/memory",
            json=body,
            headers={"Authorization": f"Bearer {shell.environment['FORESTAY_API_KEY']}"},
        )
        assert answer.status_code == 201
    told = shell("memory", "list", "--ref", "harbour", "--human").out.splitlines()
    assert len(told) == 2 and "[ship]" in told[0]
    (best,) = shell("memory", "search", "Where is the Aurora?", "--limit", "1").result["memories"]
    assert best["content"] == "The Aurora lies at berth 7."
    assert shell("memory", "forget", best["memoryId"]).result == {"forgotten": 1}
    assert shell("memory", "forget", best["memoryId"]).code == 4
    assert shell("memory", "forget").code == shell("memory", "forget", "x", "--tag", "ship").code == 2
    assert "forgot 1" in shell("memory", "forget", "--tag", "ship", "--human").out
    assert shell("memory", "list").result == {"memories": []}


def test_a_credential_is_kept_shown_without_its_value_and_revoked(shell: Shell) -> None:
    shell.environment["STRIPE_KEY"] = "canary-51c0ffee77"
    kept = shell(
        "credential", "add", "stripe", "--audience", "api.stripe.com", "--from-env", "STRIPE_KEY", "--approval"
    )
    assert kept.result["audiences"] == ["api.stripe.com"] and kept.result["issuer"] == "host"
    told = shell("credential", "list", "--human").out
    assert told.split() == ["stripe", "host", "api.stripe.com", "asks"]
    assert "canary" not in told + kept.out
    wrong = shell("credential", "add", "stripe", "--audience", "*.com", "--from-env", "STRIPE_KEY")
    assert wrong.code == 2 and "canary" not in wrong.out
    assert shell("credential", "add", "x", "--audience", "a.example.com", "--from-env", "NO_SUCH").code == 2
    assert shell("credential", "revoke", "stripe").result == {"revoked": "stripe"}
    assert shell("credential", "revoke", "stripe").code == 4
    assert shell("credential", "list").result == {"credentials": []}
