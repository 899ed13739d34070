"""What the descriptions of the contract's fixtures ask of a host by itself, driven over HTTP."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.contracts.openwop.conftest import ENDED, Api, refused
from tests.contracts.openwop.fixture_hosts import NODE, Seeded

VALID = {"content": '{"valid":true}'}


def completes(host: Seeded, name: str) -> None:
    host.ended(name)


def fails(host: Seeded, name: str) -> None:
    error = host.ended(name, "failed")["error"]
    assert error["code"] and error["message"]


def agent(host: Seeded, name: str) -> None:
    assert host.ended(name)["agent"]["agentId"]


def channel_kept(host: Seeded, name: str) -> None:
    def promoted() -> str:
        wanted = {"scenario": "promote", "agentId": "core.conformance.channel-agent", "channel": "stable"}
        made = host.api.post("/v1/host/sample/agents/deployment-transition", wanted)
        assert made.status_code == 200 and made.json()["allowed"], made.text
        return str(made.json()["record"]["version"])

    def resolved(run_id: str) -> tuple[str, str]:
        (started,) = host.of(run_id, "agent.invocation.started")
        return started["resolvedChannel"], started["resolvedAgentVersion"]

    first = promoted()
    run_id = host.ended(name)["runId"]
    second = promoted()  # the channel moves on
    fork = host.api.post(f"/v1/runs/{run_id}:fork", {"mode": "replay"}).json()["runId"]
    assert host.api.wait(fork)["status"] == "completed"
    assert first != second and resolved(run_id) == resolved(fork) == ("stable", first)
    assert resolved(host.ended(name)["runId"]) == ("stable", second)


def approval(host: Seeded, name: str) -> None:
    run_id = host.start(name)
    host.api.wait(run_id, "waiting-approval")
    assert host.answer(run_id, {"action": "accept"}).status_code == 200
    assert host.api.wait(run_id)["status"] == "completed"


def cancellable(host: Seeded, name: str) -> None:
    run_id = host.start(name)
    assert host.api.post(f"/v1/runs/{run_id}/cancel").status_code == 200
    assert host.api.wait(run_id)["status"] == "cancelled"


def cap_breach(host: Seeded, name: str) -> None:
    run = host.ended(name, "failed", configurable={"recursionLimit": 3})
    assert run["error"]["code"] == "recursion_limit_exceeded"
    assert [item["kind"] for item in host.of(run["runId"], "cap.breached")] == ["node-executions"]


def duration(host: Seeded, name: str) -> None:
    run = host.ended(name, "failed", configurable={"runTimeoutMs": 1000})
    assert run["error"]["code"] == "run_timeout"
    (breach,) = host.of(run["runId"], "cap.breached")
    assert breach["kind"] == "run-duration" and breach["observed"] >= breach["limit"]


def missing(host: Seeded, name: str) -> None:
    run = host.ended(name, "failed")
    assert run["error"]["code"] == "capability_not_provided"
    assert "node.completed" not in host.kinds(run["runId"])


def channel_ttl(host: Seeded, name: str) -> None:
    (events,) = host.ended(name)["channels"].values()
    assert len(events) == 1 and "d" in json.dumps(events[0])


def clarification(host: Seeded, name: str) -> None:
    run_id = host.start(name)
    host.api.wait(run_id, "waiting-input")
    assert host.answer(run_id, {"answers": {"q1": "blue"}}).status_code == 200
    assert host.api.wait(run_id)["status"] == "completed"


def configurable(host: Seeded, name: str) -> None:
    assert host.api.get(f"/v1/workflows/{name}").json()["configurableSchema"]["additionalProperties"] is False
    host.ended(name)
    body = {"workflowId": name, "configurable": {"nobody-knows": 1}}
    refused(host.api.post("/v1/runs", body), 400, "validation_error")


def conversation(host: Seeded, name: str) -> None:
    run_id = host.start(name)
    host.api.wait(run_id, "waiting-approval", *ENDED)
    while host.api.run(run_id)["status"] not in ENDED:
        assert host.answer(run_id, {"text": "hello"}).status_code == 200
        host.api.wait(run_id, "waiting-approval", *ENDED)
    assert host.api.run(run_id)["status"] == "completed"
    seen = host.kinds(run_id)
    assert "conversation.opened" in seen and "conversation.closed" in seen
    assert "conversation.exchanged" in seen or "lifecycle" not in name
    assert not [kind for kind in seen if kind.startswith("clarification.")]
    ids = {
        item["conversationId"]
        for kind in set(seen)
        if kind.startswith("conversation.")
        for item in host.of(run_id, kind)
    }
    assert len(ids) == 1
    fork = host.api.post(f"/v1/runs/{run_id}:fork", {"mode": "replay"}).json()["runId"]
    assert host.api.wait(fork).get("channels") == host.api.run(run_id).get("channels")


def delay(host: Seeded, name: str) -> None:
    run_id = host.start(name, {"delayMs": 50})
    assert host.api.wait(run_id)["status"] == "completed"


def echoes(host: Seeded, name: str) -> None:
    payload = {"a": [1, {"b": None}]}
    assert host.ended(name, inputs={"payload": payload})["outputs"] == {"payload": payload}


def once(host: Seeded, name: str) -> None:
    body = {"workflowId": name, "inputs": {"nonce": "n-1"}}
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    first, again = (host.api.post("/v1/runs", body, headers=headers) for _ in range(2))
    assert first.status_code == again.status_code == 201 and first.json() == again.json()
    assert again.headers["openwop-idempotent-replay"] == "true"


def in_order(host: Seeded, name: str) -> None:
    run = host.ended(name)
    started = [item["nodeId"] for item in host.of(run["runId"], "node.started")]
    nodes = [item["id"] for item in host.api.get(f"/v1/workflows/{name}").json()["nodes"]]
    assert started == nodes


def mapped_in(host: Seeded, name: str) -> None:
    (child,) = host.children(host.ended(name)["runId"])
    assert child["inputs"] == {"childGreeting": "Alice"}


def mapped_nothing(host: Seeded, name: str) -> None:
    (child,) = host.children(host.ended(name)["runId"])
    assert child.get("inputs", {}) == {}  # JSON has no `undefined`: it is absent


def mapped_out(host: Seeded, name: str) -> None:
    assert host.ended(name)["variables"]["parentResult"] == "done"


def handed_on(host: Seeded, name: str) -> None:
    first, second = host.children(host.ended(name)["runId"])
    assert second["inputs"] == {"input": "hello"}
    assert first["completedAt"] <= second["startedAt"]


def overridden(host: Seeded, name: str) -> None:
    first, second = host.children(host.ended(name)["runId"])
    assert (first["inputs"], second["inputs"]) == ({"input": "default-x-value"}, {"input": "shared-value"})


def auth_required(host: Seeded, name: str) -> None:
    run_id = host.start(name)
    host.api.wait(run_id, "waiting-approval")
    token = host.question(run_id)["token"]
    body = {"resumeValue": {"action": "accept"}}
    assert host.api.caller("").post(f"/v1/interrupts/{token}", body).status_code in (401, 403)
    (node,) = [item["id"] for item in host.api.get(f"/v1/workflows/{name}").json()["nodes"]]
    path = f"/v1/runs/{run_id}/interrupts/{node}"
    refused(host.api.caller("reader").post(path, body), 403, "forbidden")
    assert host.api.run(run_id)["status"] == "waiting-approval"
    assert host.api.post(path, body).status_code == 200
    assert host.api.wait(run_id)["status"] == "completed"


def external(host: Seeded, name: str) -> None:
    run_id = host.start(name)
    host.api.wait(run_id, "waiting-external")
    assert host.answer(run_id, {"orderId": "another-order", "status": "completed"}).status_code == 422
    assert host.api.run(run_id)["status"] == "waiting-external"
    assert host.answer(run_id, {"orderId": "fixture-order-1", "status": "completed"}).status_code == 200
    assert host.api.wait(run_id)["status"] == "completed"


def quorum(host: Seeded, name: str) -> None:
    (node,) = [item["id"] for item in host.api.get(f"/v1/workflows/{name}").json()["nodes"]]

    def vote(run_id: str, voter: Api, action: str) -> None:
        body = {"resumeValue": {"action": action}}
        answer = voter.post(f"/v1/runs/{run_id}/interrupts/{node}", body)
        assert answer.status_code == 200, answer.text

    scopes = ["approvals:respond", "runs:read"]
    voters = [host.key(principal=f"voter-{index}", scopes=scopes) for index in range(3)]
    accepted = host.start(name)
    host.api.wait(accepted, "waiting-approval")
    for index, voter in enumerate(voters):
        assert host.api.run(accepted)["status"] == "waiting-approval"
        vote(accepted, voter, "accept")
        progress = [item["quorumProgress"]["granted"] for item in host.of(accepted, "approval.granted")]
        assert progress == list(range(1, index + 2))
    assert host.api.wait(accepted)["status"] == "completed"
    rejected = host.start(name)
    host.api.wait(rejected, "waiting-approval")
    for voter in voters:
        if host.api.run(rejected)["status"] == "waiting-approval":
            vote(rejected, voter, "reject")
    assert host.api.wait(rejected)["status"] in ("failed", "completed")
    assert "approval.rejected" in host.kinds(rejected)


def cancelled_with_parent(host: Seeded, name: str) -> None:
    run_id = host.start(name)
    host.api.wait(run_id, "waiting-approval")
    (child,) = host.children(run_id)
    token = host.question(child["runId"])["token"]
    assert host.api.post(f"/v1/runs/{run_id}/cancel").status_code == 200
    for each in (run_id, child["runId"]):
        assert host.api.wait(each)["status"] == "cancelled"
    (told,) = host.of(child["runId"], "run.cancelled")
    assert told["reason"] == "parent-cancelled"
    body = {"resumeValue": {"action": "accept"}}
    refused(host.api.post(f"/v1/interrupts/{token}", body), 410, "interrupt_expired")
    (gate,) = host.api.get(f"/v1/workflows/{name}-child").json()["nodes"]
    refused(host.api.post(f"/v1/runs/{child['runId']}/interrupts/{gate['id']}", body), 410, "interrupt_expired")


def looped(host: Seeded, name: str) -> None:
    worker = {"kind": "next-worker", "nextWorkerIds": ["conformance-noop"]}
    for times in (0, 2):
        decisions = [*[worker] * times, {"kind": "terminate", "reason": "done"}]
        host.program(*({"content": json.dumps(item)} for item in decisions), node="orchestrator")
        run = host.ended(name, configurable={"model": "mock:decider"})
        decided = [item["decision"]["kind"] for item in host.of(run["runId"], "runOrchestrator.decided")]
        assert decided == [item["kind"] for item in decisions]
        assert [child["status"] for child in host.children(run["runId"])] == ["completed"] * times


def orchestrated(host: Seeded, name: str) -> None:
    run = host.ended(name)
    first = host.of(run["runId"], "runOrchestrator.decided")[0]["decision"]
    assert first["kind"] == "next-worker"
    assert [child["workflowId"] for child in host.children(run["runId"])] == first["nextWorkerIds"]
    assert all(child["status"] == "completed" for child in host.children(run["runId"]))


def terminated(host: Seeded, name: str) -> None:
    run = host.ended(name)
    decided = [item["decision"]["kind"] for item in host.of(run["runId"], "runOrchestrator.decided")]
    assert decided == ["terminate"] and host.children(run["runId"]) == []


def low_confidence(host: Seeded, name: str) -> None:
    run_id = host.start(name)
    host.api.wait(run_id, "waiting-approval")
    assert host.question(run_id)["kind"] == "low-confidence"
    (suspended,) = host.of(run_id, "node.suspended")
    assert suspended["reason"] == "low-confidence"
    assert "runOrchestrator.decided" not in host.kinds(run_id)
    host.api.post(f"/v1/runs/{run_id}/cancel")


def memory_roundtrip(host: Seeded, name: str) -> None:
    run = host.ended(name)
    found = run["variables"]["memoryReadback"]
    assert set(found) == {"id", "content", "tags", "createdAt"} and run["runId"] in found["content"]
    (written,) = host.of(run["runId"], "memory.written")
    assert (written["memoryId"], written["memoryRef"]) == (found["id"], "conformance/agent-memory-roundtrip")
    assert written["agentId"] == "core.conformance.memory-agent" and "content" not in written


def memory_expiry(host: Seeded, name: str) -> None:
    run = host.ended(name)
    (found,) = run["variables"]["memoryList"]
    assert found["expiresAt"] > found["createdAt"]
    assert len(host.of(run["runId"], "memory.written")) == 2


def memory_foreign(host: Seeded, name: str) -> None:
    ref = "conformance/another-tenant/agent-memory"
    other = host.api.caller("other")
    if other.post("/host/v1/memory", {"memoryRef": ref, "content": "of another tenant"}).status_code != 201:
        pytest.skip("this host takes no entry of another tenant over HTTP")
    assert host.ended(name)["variables"]["crossTenantProbe"] == []


def streamed_text(host: Seeded, name: str) -> None:
    mock = {"id": "stream-text", "config": {"tokens": ["Hel", "lo"], "usage": {"inputTokens": 3, "outputTokens": 2}}}
    run = host.ended(name, configurable={"mockProvider": mock})
    assert run["outputs"]["text"] == "Hello"
    chunks = host.of(run["runId"], "output.chunk")
    assert [(item["chunk"], item["isLast"]) for item in chunks] == [("Hel", False), ("lo", True)]
    usage = {"promptTokens": 3, "completionTokens": 2, "totalTokens": 5}
    assert chunks[-1]["meta"] == {"finishReason": "stop", "usage": usage}
    (usage,) = host.of(run["runId"], "provider.usage")
    assert (usage["inputTokens"], usage["outputTokens"]) == (3, 2)
    shown = host.api.stream(run["runId"], params={"streamMode": "messages"})
    assert [data["chunk"] for _, event, data in shown if event == "ai.message.chunk"] == ["Hel", "lo"]


def sub_out(host: Seeded, name: str) -> None:
    run = host.ended(name)
    assert run["variables"]["childOutcome"] == "child-completed"
    (child,) = host.children(run["runId"])
    assert child["status"] == "completed" and child["owner"]["tenant"] == run["owner"]["tenant"]


def sub_in(host: Seeded, name: str) -> None:
    (child,) = host.children(host.ended(name)["runId"])
    assert child["variables"]["receivedPrdId"] == "prd-1"


def sub_unset(host: Seeded, name: str) -> None:
    (child,) = host.children(host.ended(name)["runId"])
    assert child["status"] == "completed"
    assert "receivedPrdId" not in child.get("variables", {})  # JSON has no `undefined`: it is absent


def greeted(host: Seeded, name: str) -> None:
    for given, wanted in (({"name": "openwop"}, "Hello, openwop!"), ({}, "Hello, world!")):
        assert host.ended(name, inputs=given)["outputs"]["greeting"] == wanted


def blown_up(host: Seeded, name: str) -> None:
    (breach,) = host.of(host.ended(name, "failed")["runId"], "cap.breached")
    assert breach["kind"] == "wasm-memory" and breach["observed"] > breach["limit"]


def mutated(host: Seeded, name: str) -> None:
    run_id = host.start(name)
    host.api.wait(run_id, "waiting-approval")
    changed = {"variables": {"currentPrdId": "mutated-id"}}
    assert host.api.post(f"/v1/host/sample/test/runs/{run_id}/variables", changed).status_code == 200
    assert host.api.run(run_id)["variables"]["currentPrdId"] == "mutated-id"
    (child,) = host.children(run_id)
    assert host.answer(child["runId"], {"action": "accept"}).status_code == 200
    assert host.api.wait(run_id)["status"] == "completed"
    assert host.api.run(child["runId"])["variables"]["receivedPrdId"] == "seeded-id"
    refused(host.api.post(f"/v1/host/sample/test/runs/{run_id}/variables", changed), 409, "conflict")


def version_fold(host: Seeded, name: str) -> None:
    bounds = host.capabilities["testing"]["forceEngineVersionRange"]
    for version in {bounds["min"], bounds["max"]}:
        answer = host.api.post("/v1/runs", {"workflowId": name}, headers={"X-Force-Engine-Version": str(version)})
        assert answer.status_code == 201, answer.text
        assert host.api.wait(answer.json()["runId"])["status"] == "completed"
    beyond = {"X-Force-Engine-Version": str(bounds["max"] + 1)}
    refused(host.api.post("/v1/runs", {"workflowId": name}, headers=beyond), 422, "version_out_of_range")


def reasoning(host: Seeded, name: str) -> None:
    run_id = host.ended(name)["runId"]
    kinds = ["agent.reasoned", "agent.toolCalled", "agent.toolReturned", "agent.handoff", "agent.decided"]
    assert host.kinds(run_id, "agent.") == kinds
    assert all(item["agentId"] for kind in kinds for item in host.of(run_id, kind))
    assert host.of(run_id, "agent.toolCalled")[0]["callId"] == host.of(run_id, "agent.toolReturned")[0]["callId"]


def reasoning_streamed(host: Seeded, name: str) -> None:
    run_id = host.ended(name)["runId"]
    deltas = host.of(run_id, "agent.reasoning.delta")
    assert [item["sequence"] for item in deltas] == list(range(len(deltas))) and deltas
    (said,) = host.of(run_id, "agent.reasoned")
    assert said["reasoning"] == "".join(item["delta"] for item in deltas)


def messages(host: Seeded, name: str) -> None:
    found = host.ended(name)["channels"]["messages"]
    assert [item["messageId"] for item in found] == ["m-1"]


def coerced(host: Seeded, name: str) -> None:
    prose = {"content": "Well, the result is fine."}
    host.program(prose, prose, prose, {"content": '{"result":"ok"}'})
    run_id = host.ended(name)["runId"]
    (engaged,) = host.of(run_id, "envelope.nlToFormat.engaged")
    assert engaged["fallbackCalls"] == 1 and host.of(run_id, "envelope.retry.exhausted") == []


def recovered(host: Seeded, name: str) -> None:
    host.program({"content": '```json\n{"result":"ok"}\n```'})
    run_id = host.ended(name)["runId"]
    assert [item["path"] for item in host.of(run_id, "envelope.recovery.applied")] == ["markdown-fence"]
    assert host.of(run_id, "envelope.retry.attempted") == []


def refused_by_model(host: Seeded, name: str) -> None:
    host.program({"stopReason": "safety", "refusalText": "I will not say it."}, VALID)
    run = host.ended(name, "failed")
    assert run["error"]["code"] == "envelope_refused_by_provider" and "I will not" not in run["error"]["message"]
    assert len(host.of(run["runId"], "envelope.refusal")) == 1
    assert len(host.of(run["runId"], "provider.usage")) == 1, "a refusal is not asked again"


def retried(host: Seeded, name: str) -> None:
    host.program({"content": "{not json"}, VALID)
    run_id = host.ended(name)["runId"]
    assert [item["attempt"] for item in host.of(run_id, "envelope.retry.attempted")] == [2]


def exhausted(host: Seeded, name: str) -> None:
    host.program(*[{"content": "{not json"}] * 9)
    run = host.ended(name, "failed")
    assert run["error"]["code"] == "envelope_payload_invalid"
    assert [item["finalReason"] for item in host.of(run["runId"], "envelope.retry.exhausted")] == ["parse-error"]


def truncated(host: Seeded, name: str) -> None:
    for content, is_partial in (('{"va', False), ('{"valid":true}', True)):
        host.program({"stopReason": "max_tokens", "content": content}, VALID)
        run_id = host.ended(name)["runId"]
        (told,) = host.of(run_id, "envelope.truncated")
        assert (told["stopReason"], told["partialPayloadAvailable"]) == ("max_tokens", is_partial)
        assert [item["reason"] for item in host.of(run_id, "envelope.retry.attempted")] == ["truncation"]
        budget = host.api.get("/v1/host/sample/test/mock-ai/last-dispatch-budget", params={"nodeId": NODE})
        assert budget.json()["maxTokens"] == 100, "twice the node's 50"


def cut_off(host: Seeded, name: str) -> None:
    host.program(*[{"stopReason": "max_tokens"}] * 9)
    run = host.ended(name, "failed")
    assert run["error"]["code"] == "envelope_truncation_unrecoverable"
    assert [item["finalReason"] for item in host.of(run["runId"], "envelope.retry.exhausted")] == ["truncation"]
    assert [item["kind"] for item in host.of(run["runId"], "cap.breached")] == ["schema"]
    assert len(host.of(run["runId"], "provider.usage")) == host.capabilities["limits"]["schemaRounds"]


def recalled(host: Seeded, name: str) -> None:
    host.program(VALID, {"content": '{"valid":false}'})
    run = host.ended(name)
    fork = host.api.post(f"/v1/runs/{run['runId']}:fork", {"mode": "replay"}).json()["runId"]
    assert host.api.wait(fork)["outputs"] == run["outputs"]

    def shape(run_id: str) -> list[Any]:
        return [(event["type"], event.get("nodeId"), event["payload"]) for event in host.api.events(run_id)]

    assert shape(fork) == shape(run["runId"])


def refused_on_replay(host: Seeded, name: str) -> None:
    """Both directions: the model refuses now what it answered, and answers what it refused."""
    refusal = {"stopReason": "safety", "refusalText": "I will not say it."}
    for status, before, after in (("completed", VALID, refusal), ("failed", refusal, VALID)):
        kinds = ("refusal", "valid") if before is refusal else ("valid", "refusal")
        host.program(before, after)
        source = host.ended(name, status)["runId"]
        answer = host.api.post(f"/v1/runs/{source}:fork", {"mode": "replay"})
        details = refused(answer, 422, "replay_diverged_at_refusal")
        assert (details["originalEnvelopeKind"], details["replayEnvelopeKind"]) == kinds
        host.started.append(details["runId"])
        replay = host.api.wait(details["runId"])
        assert (replay["status"], replay["error"]["code"]) == ("failed", "replay_diverged_at_refusal")
        (told,) = host.of(details["runId"], "replay.divergedAtRefusal")
        assert (told["originalEnvelopeKind"], told["replayEnvelopeKind"]) == kinds
        assert (told["sourceRunId"], told["nodeId"]) == (source, "structured-call")
        assert not host.of(details["runId"], "node.completed"), "nothing goes on behind it"
        assert "I will not" not in str(host.api.events(details["runId"])) or before is refusal


def prompts(host: Seeded, name: str) -> None:
    run_id = host.ended(name)["runId"]
    resolved, composed = host.of(run_id, "agent.promptResolved"), host.of(run_id, "prompt.composed")
    assert len(resolved) == len(composed) == (5 if "four-kinds" in name else 1)
    assert [item["resolved"] for item in resolved] == [item["refs"][0] for item in composed]
