"""Every fixture that discovery lists, driven as its description says, against a host that was started for it (W23).

The workflows are the contract's own where they are at hand, else ours under the contract's names. Nothing is put in but
what a client can put in: runs, answers, keys, and with the test seams the words of the mock provider.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.runs import RunEvent
from tests.contracts.openwop.conftest import ENDED, Api, LocalHost, refused
from tests.contracts.openwop.documents import CONTRACT_NAMES, DOCUMENTS
from tests.runs.events import check_events

REFERENCE = os.environ.get("FORESTAY_REFERENCE") or Path(__file__).parents[4] / "shared" / "reference"
FOLDER = Path(REFERENCE) / "openwop" / "fixtures"
OURS = [{**DOCUMENTS[name], "id": CONTRACT_NAMES[name]} for name in sorted(CONTRACT_NAMES)]
NODE = "structured-call"
VALID = {"content": '{"valid":true}'}


def documents() -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))] or OURS


class Seeded:
    """A host with every fixture that it can load."""

    def __init__(self, api: Api) -> None:
        self.api = api.caller("test")
        self.started: list[str] = []
        self.capabilities: dict[str, Any] = api.get("/.well-known/openwop").json()

    def start(self, name: str, inputs: dict[str, Any] | None = None, **body: Any) -> str:
        answer = self.api.post("/v1/runs", {"workflowId": name, "inputs": inputs or {}, **body})
        assert answer.status_code == 201, answer.text
        self.started.append(str(answer.json()["runId"]))
        return self.started[-1]

    def ended(self, name: str, status: str = "completed", **options: Any) -> dict[str, Any]:
        run = self.api.wait(self.start(name, **options))
        assert run["status"] == status, run
        return run

    def of(self, run_id: str, type: str) -> list[dict[str, Any]]:
        return [event["payload"] for event in self.api.events(run_id) if event["type"] == type]

    def kinds(self, run_id: str, prefix: str = "") -> list[str]:
        return [event["type"] for event in self.api.events(run_id) if event["type"].startswith(prefix)]

    def children(self, run_id: str) -> list[dict[str, Any]]:
        ids = dict.fromkeys(item["childRunId"] for item in self.of(run_id, "node.dispatched"))
        return [self.api.run(child) for child in ids]

    def question(self, run_id: str) -> dict[str, Any]:
        (asked,) = self.api.get(f"/v1/runs/{run_id}/interrupts").json()["interrupts"]
        found: dict[str, Any] = asked
        return found

    def answer(self, run_id: str, value: Any) -> Any:
        return self.api.post(f"/v1/interrupts/{self.question(run_id)['token']}", {"resumeValue": value})

    def key(self, **options: Any) -> Api:
        made = self.api.post("/host/v1/keys", {"name": f"voter-{uuid.uuid4().hex}", **options})
        assert made.status_code == 201, made.text
        name = str(made.json()["result"]["description"]["keyId"])
        self.api.keys[name] = str(made.json()["result"]["apiKey"])
        return self.api.caller(name)

    def program(self, *entries: dict[str, Any]) -> None:
        body = {"nodeId": NODE, "program": list(entries)}
        assert self.api.post("/v1/host/sample/test/mock-ai/program", body).status_code == 200


def _up(folder: Path, fixtures: Path, *options: str) -> Iterator[Seeded]:
    host = LocalHost(folder)
    api = Api(host.start("--workflows", str(fixtures), *options), host.keys)
    try:
        yield Seeded(api)
    finally:
        api.close()
        assert host.stop() == 0


def _loadable(folder: Path, *options: str) -> Path:
    """A folder of the fixtures that such a host says it can load."""
    host = LocalHost(folder / "asked")
    api = Api(host.start(*options), host.keys)
    kept = folder / "fixtures"
    kept.mkdir()
    try:
        for document in documents():
            if api.post("/v1/workflows:check", document).json()["valid"]:
                (kept / f"{document['id']}.json").write_text(json.dumps(document))
    finally:
        api.close()
        host.stop()
    return kept


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """`forestay up`, as anybody starts it."""
    folder = tmp_path_factory.mktemp("plain")
    yield from _up(folder / "data", _loadable(folder))


@pytest.fixture(scope="module")
def seams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """`forestay up --sample-seams`."""
    folder = tmp_path_factory.mktemp("seams")
    yield from _up(folder / "data", _loadable(folder, "--sample-seams"), "--sample-seams")


# What a description asks for. A fixture that is not here, and is listed, is a failure of this suite.


def completes(host: Seeded, name: str) -> None:
    host.ended(name)


def fails(host: Seeded, name: str) -> None:
    error = host.ended(name, "failed")["error"]
    assert error["code"] and error["message"]


def agent(host: Seeded, name: str) -> None:
    assert host.ended(name)["agent"]["agentId"]


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


DRIVERS: dict[str, Callable[[Seeded, str], None]] = {
    "agent-identity": agent,
    "agent-low-confidence": low_confidence,
    "agent-reasoning": reasoning,
    "agent-reasoning-streaming": reasoning_streamed,
    "approval": approval,
    "cancellable": cancellable,
    "cap-breach": cap_breach,
    "capability-missing": missing,
    "channel-ttl": channel_ttl,
    "clarification": clarification,
    "configurable-schema": configurable,
    "conversation-capability-negotiation": conversation,
    "conversation-lifecycle": conversation,
    "conversation-replay": conversation,
    "conversation-vs-clarification": conversation,
    "delay": delay,
    "dispatch-cancellable-child": cancellable,
    "dispatch-cross-worker-handoff": handed_on,
    "dispatch-cross-worker-handoff-child-a": completes,
    "dispatch-cross-worker-handoff-child-b": completes,
    "dispatch-deterministic-fail-child": fails,
    "dispatch-input-mapping": mapped_in,
    "dispatch-input-mapping-child": completes,
    "dispatch-input-mapping-no-default": mapped_nothing,
    "dispatch-output-mapping": mapped_out,
    "dispatch-output-mapping-child": completes,
    "dispatch-per-worker-override": overridden,
    "envelope-nl-to-format-engaged": coerced,
    "envelope-recovery-applied": recovered,
    "envelope-refusal": refused_by_model,
    "envelope-retry-attempted": retried,
    "envelope-retry-exhausted": exhausted,
    "envelope-truncated": truncated,
    "envelope-truncation-cap-exhaustion": cut_off,
    "failure": fails,
    "idempotent": once,
    "identity": echoes,
    "interrupt-auth-required": auth_required,
    "interrupt-external-event": external,
    "interrupt-quorum": quorum,
    "message-reducer": messages,
    "multi-node": in_order,
    "noop": completes,
    "orchestrator-dispatch": orchestrated,
    "orchestrator-low-confidence": low_confidence,
    "orchestrator-terminate": terminated,
    "phase4-nondet-tool": recalled,
    "run-duration-breach": duration,
    "stream-text": streamed_text,
    "subworkflow-child": completes,
    "subworkflow-input-mapping": sub_in,
    "subworkflow-input-mapping-child": completes,
    "subworkflow-parent": sub_out,
    "version-fold": version_fold,
}


@pytest.mark.parametrize("kind", ["plain", "seams"])
def test_w23_every_fixture_that_is_listed_has_a_driver_and_can_be_loaded(
    kind: str, request: pytest.FixtureRequest
) -> None:
    host: Seeded = request.getfixturevalue(kind)
    listed = [name.removeprefix("conformance-") for name in host.capabilities["fixtures"]]
    assert set(listed) <= DRIVERS.keys()
    assert {"noop", "identity", "approval", "stream-text"} <= set(listed)
    loaded = {item["workflowId"] for item in host.api.get("/v1/workflows").json()["workflows"]}
    assert loaded >= set(host.capabilities["fixtures"])


@pytest.mark.parametrize("name", sorted(DRIVERS))
@pytest.mark.parametrize("kind", ["plain", "seams"])
def test_w23_a_fixture_that_is_listed_does_what_it_says(kind: str, name: str, request: pytest.FixtureRequest) -> None:
    host: Seeded = request.getfixturevalue(kind)
    if f"conformance-{name}" not in host.capabilities["fixtures"]:
        pytest.skip("this host does not list it")
    host.started.clear()
    DRIVERS[name](host, f"conformance-{name}")
    for run_id in host.started:  # and each event is what the contract's schemas say, where they are at hand
        check_events(msgspec.convert(host.api.events(run_id), list[RunEvent]))
