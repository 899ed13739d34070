"""What the descriptions ask of a host that works with others: workers, peers, servers, packs, secrets, collectors."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.contracts.openwop.conftest import refused
from tests.contracts.openwop.fixture_hosts import AGENT_PACKS, SECRETS, Seeded
from tests.runs.events import check_document


def handed_over(host: Seeded, name: str) -> None:
    run = host.ended(name)
    events = {event["eventId"]: event for event in host.api.events(run["runId"])}
    chain = [event for event in events.values() if event["type"] == "core.workflowChain.event"]
    phases = ["dispatch.began", "dispatch.succeeded", "child.completed", "output.harvested"]
    assert [event["payload"]["phase"] for event in chain] == phases
    causes = [events[event["causationId"]] for event in chain]
    assert causes[0]["type"] == "runOrchestrator.decided" and causes[1:] == chain[:-1]
    (child,) = host.children(run["runId"])
    assert [event["payload"].get("childRunId") for event in chain] == [None, *[child["runId"]] * 3]
    assert chain[-1]["payload"]["harvestedKeys"] == ["parentResult"]
    assert run["variables"]["parentResult"] == "handoff-complete"
    assert host.capabilities["multiAgent"]["executionModel"]["supported"] is True


def escalated(host: Seeded, name: str) -> None:
    assert host.capabilities["multiAgent"]["executionModel"]["version"] >= 2

    def asked() -> str:
        run_id = host.start(name)
        host.api.wait(run_id, "waiting-input")  # a snapshot's word for a run that waits for a clarification
        (told,) = host.of(run_id, "core.workflowChain.confidence-escalated")
        assert (told["confidence"], told["workerId"]) == (0.3, "conformance-multi-agent-handoff-child")
        assert told["floor"] == host.capabilities["multiAgent"]["executionModel"]["confidenceEscalationFloor"]
        assert host.kinds(run_id, "core.workflowChain.event") == [] and host.children(run_id) == []
        kinds = host.kinds(run_id)
        assert kinds.index("core.workflowChain.confidence-escalated") < kinds.index("interrupt.requested")
        question = host.question(run_id)
        assert (question["kind"], question["nodeId"]) == ("clarification", "dispatch")
        return run_id

    refused_one, confirmed = asked(), asked()
    assert host.answer(refused_one, {"answers": {"confirm": False}}).status_code == 200
    assert host.api.wait(refused_one)["error"]["code"] == "decision_rejected"
    assert host.children(refused_one) == []
    assert host.answer(confirmed, {"answers": {"confirm": True}}).status_code == 200
    assert host.api.wait(confirmed)["status"] == "completed"
    assert [child["status"] for child in host.children(confirmed)] == ["completed"]


def a2a_task(host: Seeded, name: str) -> None:
    agent = host.peers.agent
    for plan in ([], ["WORKING", "COMPLETED"]):
        agent.plan[:] = plan
        outputs = host.ended(name)["outputs"]
        assert (outputs["state"], outputs["contentTrust"]) == ("COMPLETED", "untrusted")
        assert outputs["text"].startswith("echo:")
        assert agent.heard[-1].metadata["skill"] == "echo"
    agent.plan[:] = ["REJECTED"]
    rejected = host.ended(name, "failed", inputs={"driftScenario": "rejected"})
    assert rejected["error"]["code"] == "rejected_by_remote"
    agent.plan[:] = ["AUTH_REQUIRED"]
    run_id = host.start(name, {"driftScenario": "auth-required"})
    host.api.wait(run_id, "waiting-input")
    question = host.question(run_id)
    assert (question["kind"], question["data"]["contextType"]) == ("clarification", "a2a-auth")
    assert host.api.post(f"/v1/runs/{run_id}/cancel").status_code == 200
    agent.plan[:] = ["INPUT_REQUIRED"]
    run_id = host.start(name)
    host.api.wait(run_id, "waiting-input")
    assert "Now INPUT_REQUIRED." in host.question(run_id)["data"]["questions"][0]["question"]
    assert host.answer(run_id, {"answers": {"answer": "blue"}}).status_code == 200
    assert host.api.wait(run_id)["outputs"]["text"] == "echo: blue"


def mcp_tool(host: Seeded, name: str) -> None:
    calls = host.peers.calls
    calls.clear()
    run = host.ended(name, inputs={"text": "roundtrip-probe"})
    assert calls == ["roundtrip-probe"]
    assert run["outputs"]["contentTrust"] == "untrusted" and "roundtrip-probe" in json.dumps(run["outputs"])
    (called,), (returned,) = (host.of(run["runId"], f"agent.tool{what}") for what in ("Called", "Returned"))
    assert (called["toolName"], called["transport"]) == ("echo", "mcp")
    assert (returned["callId"], returned["contentTrust"]) == (called["callId"], "untrusted")


def pack_installed(host: Seeded, name: str) -> None:
    host.ended(name)
    packs = {item["name"]: item["agents"] for item in host.api.get("/v1/packs").json()["packs"]}
    assert packs.keys() == {pack["name"] for pack in AGENT_PACKS}
    for pack in AGENT_PACKS:
        for shown, given in zip(packs[pack["name"]], pack["agents"], strict=True):
            check_document("agent-manifest", shown)
            assert all(shown[key] == given[key] for key in ("agentId", "persona", "modelClass"))
    elsewhere = {item["name"] for item in host.api.caller("other").get("/v1/packs").json()["packs"]}
    assert not elsewhere & packs.keys(), "a tenant's packs are its own"


def pack_exported(host: Seeded, name: str) -> None:
    host.ended(name)
    refused(host.api.caller("reader").get("/v1/packs/export"), 403, "forbidden")
    made = host.api.get("/v1/packs/export").json()
    for item in made["manifests"]:
        check_document("agent-manifest", item)
    ids = {item["agentId"] for item in made["manifests"]}
    assert "core.conformance.exportable-agent" in ids
    own = [item for item in made["manifests"] if not item["agentId"].startswith("core.forestay.")]
    again = {"name": "core.conformance.again", "version": "1.0.0", "agents": own, "files": made["files"]}
    elsewhere = host.api.caller("other")  # what is exported can be installed, and is the same there
    assert elsewhere.post("/host/v1/agent-packs", again).status_code == 201
    assert elsewhere.get("/v1/packs").json()["packs"][0]["agents"] == own


def pack_source(host: Seeded, name: str) -> None:
    source = "core.conformance.agent-pack.installed-agent"
    assert host.ended(name)["agent"]["sourceManifestId"] == source
    assert source in {item["agentId"] for pack in host.api.get("/v1/packs").json()["packs"] for item in pack["agents"]}


def handoff_checked(host: Seeded, name: str) -> None:
    host.ended(name, inputs={"scenario": "noop"})

    def dispatched(task: dict[str, Any], said: str) -> dict[str, Any]:
        mock = {"id": "stream-text", "config": {"tokens": [said]}}
        agent_id = "core.openwop.agent-examples.structured-fixture"
        body = {"agentId": agent_id, "inputs": task, "configurable": {"mockProvider": mock}}
        made = host.api.post("/v1/runs", body)
        assert made.status_code == 201, made.text
        return host.api.wait(made.json()["runId"])

    valid = dispatched({"question": "Why?"}, '{"answer": "because"}')
    assert valid["status"] == "completed" and "because" in json.dumps(valid["outputs"])
    invalid = dispatched({"question": 7}, '{"answer": "because"}')
    assert invalid["status"] == "failed"
    assert host.kinds(invalid["runId"], "provider.usage") == [], "the agent was not asked"
    violated = dispatched({"question": "Why?"}, '{"answer": 7}')
    assert violated["status"] == "failed" and not violated.get("outputs")
    assert host.of(violated["runId"], "agent.invocation.completed")[-1]["outcome"] == "failed"


def gated(host: Seeded, name: str) -> None:
    run = host.ended(name, "failed")
    assert run["error"]["code"] == "capability_not_provided"
    kinds = host.kinds(run["runId"])
    assert kinds.index("model.capability.insufficient") < kinds.index("node.failed")
    assert not {"node.completed", "provider.usage"} & set(kinds)
    (told,) = host.of(run["runId"], "model.capability.insufficient")
    assert told["missingCapabilities"] == ["nonexistent-capability-9b3f"]
    assert host.capabilities["modelCapabilities"]["supported"] is True


def shown_nowhere(host: Seeded, run_id: str, value: str) -> None:
    """The value is on no surface of the run."""
    paths = ("", "/debug-bundle", "/events/poll?lastSequence=-1&timeout=1")
    assert not [path for path in paths if value in host.api.get(f"/v1/runs/{run_id}{path}").text]


def secret_resolved(host: Seeded, name: str) -> None:
    value = SECRETS["openwop-conformance-canary-secret"]
    run = host.ended(name)
    assert run["variables"]["secretSha256"] == hashlib.sha256(value.encode()).hexdigest()
    assert run["variables"]["secretLength"] == len(value.encode())
    shown_nowhere(host, run["runId"], value)


def memory_redacted(host: Seeded, name: str) -> None:
    run = host.ended(name)
    content = run["variables"]["memoryReadback"]["content"]
    assert "[REDACTED:conformance-test-secret]" in content
    assert SECRETS["conformance-test-secret"] not in content
    shown_nowhere(host, run["runId"], SECRETS["conformance-test-secret"])


def cost_attributed(host: Seeded, name: str) -> None:
    run = host.ended(name)
    spans = host.collector.of(run["runId"])
    said = {key for span in spans for key in span if key.startswith("openwop.cost.")}
    tokens = {f"openwop.cost.tokens.{kind}" for kind in ("input", "output", "total")}
    more = {f"openwop.cost.{kind}" for kind in ("usd", "currency", "estimated", "provider")}
    assert said == tokens | more
    assert "CANARY" not in json.dumps(host.collector.spans)
    assert run["metrics"]["openwopCost"]["tokens"] == {"input": 100, "output": 50}
