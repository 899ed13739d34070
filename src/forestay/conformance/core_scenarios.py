"""Scenarios of the protocol's core: discovery, keys, errors, runs, their logs and streams, interrupts, replay."""

from __future__ import annotations

from uuid import uuid4

from forestay.conformance.scenario import NotApplicable, expect, has, same, scenario
from forestay.conformance.target import Target, answered, refused

_EVENT = {"eventId", "runId", "type", "payload", "timestamp", "sequence"}
_QUIET = ("node.started", "node.retried", "variable.changed", "log.appended", "lease.")


@scenario("discovery", "discovery", "core")
def discovery(target: Target) -> None:
    """The document needs no key, has what every host must say, and its families at the root."""
    document = target.document
    has(document, {"protocolVersion", "supportedEnvelopes", "schemaVersions", "limits"}, "the document")
    expect(str(document["protocolVersion"]).startswith("1."), "protocolVersion is no 1.x")
    expect(isinstance(document["supportedEnvelopes"], list), "supportedEnvelopes is no array")
    expect(isinstance(document["schemaVersions"], dict), "schemaVersions is no object")
    has(document["limits"], {"clarificationRounds", "schemaRounds", "envelopesPerTurn"}, "limits")
    for name in ("clarificationRounds", "schemaRounds", "envelopesPerTurn"):
        value = document["limits"][name]
        expect(isinstance(value, int) and value >= 0, f"limits.{name} is no number that is 0 or more")
    same(target.read("/.well-known/openwop"), document, "the document with a key")


@scenario("auth", "auth", "core")
def auth(target: Target) -> None:
    """Without a key, or with one that is none, everything is 401; what is another tenant's is not there."""
    for path in ("/v1/runs/run_none", "/v1/runs/run_none/events/poll"):
        refused(target.get(path, key=""), 401)
        for header in ("Bearer not-a-key", "Basic eA==", "Bearer"):
            refused(target.get(path, key="", headers={"Authorization": header}), 401)
    refused(target.post("/v1/runs", {"workflowId": "x"}, key=""), 401)


@scenario("tenant-isolation", "auth")
def isolation(target: Target) -> None:
    """A run of another tenant is not found, and cannot be cancelled."""
    run_id, other = target.start("conformance-noop"), target.other()
    refused(target.get(f"/v1/runs/{run_id}", key=other), 404)
    refused(target.get(f"/v1/runs/{run_id}/events/poll", key=other), 404)
    refused(target.post(f"/v1/runs/{run_id}/cancel", key=other), 404)
    target.wait(run_id, "completed")


@scenario("errors", "errors", "core")
def errors(target: Target) -> None:
    """What is refused is refused with the contract's envelope."""
    refused(target.get(f"/v1/runs/{uuid4().hex}"), 404)
    refused(target.post("/v1/runs", {"workflowId": f"no-{uuid4().hex}"}), 404, 422)
    refused(target.post("/v1/runs", {}), 400, 422)
    broken = target.ask("POST", "/v1/runs", content=b'{"workflowId": ', headers={"Content-Type": "application/json"})
    refused(broken, 400)


@scenario("runs-lifecycle", "runs", "core")
def lifecycle(target: Target) -> None:
    """A run is made, ends, and its log begins and ends as the contract says."""
    run_id = target.start("conformance-noop")
    run = target.wait(run_id)
    same(run["status"], "completed", "the run's status")
    same(run["runId"], run_id, "runId")
    events = target.events(run_id)
    for event in events:
        has(event, _EVENT, f"the event {event.get('type')}")
    kinds = [event["type"] for event in events]
    same((kinds[0], kinds[-1]), ("run.started", "run.completed"), "the first and the last event")
    expect(kinds.index("node.started") < kinds.index("node.completed"), "a node ends before it starts")


@scenario("append-ordering", "runs", "core")
def ordering(target: Target) -> None:
    """Sequences are 0, 1, 2, … without a gap, for every reader the same; a poll is exclusive."""
    run_id = target.start("conformance-multi-node")
    target.wait(run_id, "completed")
    events = target.events(run_id)
    same([event["sequence"] for event in events], list(range(len(events))), "the sequences")
    same(len({event["eventId"] for event in events}), len(events), "the number of event ids")
    middle = len(events) // 2
    same(target.events(run_id, after=middle), events[middle + 1 :], "what a poll gives behind a sequence")
    same(target.events(run_id), events, "what a second reader gets")


@scenario("failure-path", "runs", "core")
def failure(target: Target) -> None:
    """A run that fails says why, and its status and its last event agree."""
    run_id = target.start("conformance-failure")
    run = target.wait(run_id, "failed")
    has(run["error"], {"code"}, "the run's error")
    last = target.events(run_id)[-1]
    same(last["type"], "run.failed", "the last event")
    has(last["payload"]["error"], {"code"}, "the error of run.failed")
    expect(target.told(run_id, "node.failed"), "no node.failed tells which node it was")


@scenario("cancellation", "runs", "core")
def cancellation(target: Target) -> None:
    """A run that waits is cancelled, and stays so."""
    run_id = target.start("conformance-cancellable")
    answer = target.post(f"/v1/runs/{run_id}/cancel", {"reason": "conformance"})
    expect(answer.status_code in (200, 202), f"cancel answers {answer.status_code}")
    target.wait(run_id, "cancelled")
    same(target.events(run_id)[-1]["type"], "run.cancelled", "the last event")


@scenario("idempotency", "runs", "core")
def idempotency(target: Target) -> None:
    """The same key and body is the same run, said to be a replay; another body under the key is refused."""
    body = {"workflowId": target.workflow("conformance-noop"), "inputs": {}}
    headers = {"Idempotency-Key": uuid4().hex}
    first, again = (target.post("/v1/runs", body, headers=headers) for _ in range(2))
    same(answered(again, 201)["runId"], answered(first, 201)["runId"], "the run of the repeated request")
    same(again.headers.get("openwop-idempotent-replay"), "true", "openwop-Idempotent-Replay")
    refused(target.post("/v1/runs", {**body, "tags": ["other"]}, headers=headers), 409)
    other = target.post("/v1/runs", body, headers={"Idempotency-Key": uuid4().hex})
    expect(answered(other, 201)["runId"] != first.json()["runId"], "another key gives the same run")


@scenario("configurable-schema", "runs", "core")
def configurable(target: Target) -> None:
    """Options that the workflow's schema does not take start nothing."""
    name = target.workflow("conformance-configurable-schema")
    wrong = {"workflowId": name, "inputs": {}, "configurable": {f"no-{uuid4().hex}": []}}
    refused(target.post("/v1/runs", wrong), 400, 422)
    target.wait(target.start("conformance-configurable-schema"), "completed")


@scenario("stream-modes", "streams", "core")
def streams(target: Target) -> None:
    """A stream shows what its mode shows, goes on behind Last-Event-ID, and ends with the run."""
    run_id = target.start("conformance-multi-node")
    target.wait(run_id, "completed")
    updates = target.stream(run_id)
    kinds = [event for _, event, _ in updates]
    expect(kinds and "run.completed" in kinds[-1], "the stream does not end with run.completed")
    expect(not [kind for kind in kinds if kind.startswith(_QUIET)], "updates shows what it leaves out")
    whole = target.stream(run_id, params={"streamMode": "debug"})
    same(len(whole), len(target.events(run_id)), "the number of events that debug shows")
    rest = target.stream(run_id, params={"streamMode": "debug"}, headers={"Last-Event-ID": whole[1][0]})
    same([item[0] for item in rest], [item[0] for item in whole[2:]], "what follows Last-Event-ID")
    refused(target.get(f"/v1/runs/{run_id}/events", params={"streamMode": "no-such-mode"}), 400)
    refused(target.get(f"/v1/runs/{run_id}/events", params={"bufferMs": 9_999_999}), 400)


def _asked(target: Target, name: str, status: str, kind: str) -> tuple[str, str, str]:
    """Start a run that waits; return its id, the node that asks and the token of the question."""
    run_id = target.start(name)
    target.wait(run_id, status)
    (asked,) = target.read(f"/v1/runs/{run_id}/interrupts")["interrupts"]
    same(asked["kind"], kind, "the kind of the question")
    return run_id, asked["nodeId"], asked["token"]


@scenario("interrupt-approval", "interrupts", "interrupts")
def approval(target: Target) -> None:
    """A run waits for a person, goes on when it is accepted, and cannot be answered twice."""
    run_id, _, token = _asked(target, "conformance-approval", "waiting-approval", "approval")
    expect(token not in str(target.events(run_id)), "the token stands in the log")
    expect(token not in str(target.run(run_id)), "the token stands in the snapshot")
    body = {"resumeValue": {"action": "accept"}}
    tampered = token[:-2] + ("aa" if token[-2:] != "aa" else "bb")
    expect(target.post(f"/v1/interrupts/{tampered}", body, key="").status_code >= 400, "a changed token opens the gate")
    answered(target.post(f"/v1/interrupts/{token}", body, key=""), 200)
    target.wait(run_id, "completed")
    refused(target.post(f"/v1/interrupts/{token}", body, key=""), 409, 410, 422)


@scenario("interrupt-clarification", "interrupts", "interrupts")
def clarification(target: Target) -> None:
    """A question is answered by the id of each of its questions."""
    run_id, node, _ = _asked(target, "conformance-clarification", "waiting-input", "clarification")
    told = target.told(run_id, "clarification.requested")
    expect(told, "no clarification.requested is told")
    questions = told[-1]["payload"]["questions"]
    answers = {str(question["id"]): "blue" for question in questions}
    answered(target.post(f"/v1/runs/{run_id}/interrupts/{node}", {"resumeValue": answers}), 200)
    target.wait(run_id, "completed")
    expect(target.told(run_id, "clarification.resolved", "interrupt.resolved"), "no event tells the answer")


@scenario("replay-fork", "replay", "replay-fork", "agent-platform", needs="replay.supported")
def fork(target: Target) -> None:
    """A fork takes the same way; a replay reproduces the log."""
    run_id = target.start("conformance-multi-node")
    target.wait(run_id, "completed")
    modes = target.flag("replay.modes") or []
    expect(modes, "replay.modes is empty")
    for mode in modes:
        made = answered(target.post(f"/v1/runs/{run_id}:fork", {"mode": mode, "fromSeq": 0}), 201)
        expect(made["runId"] != run_id, "a fork is the run itself")
        target.wait(made["runId"], "completed")
        if mode == "replay":
            first = [(event["type"], event.get("nodeId")) for event in target.events(run_id)]
            again = [(event["type"], event.get("nodeId")) for event in target.events(made["runId"])]
            same(again, first, "the replayed log")
    refused(target.post(f"/v1/runs/{run_id}:fork", {"mode": "no-such-mode", "fromSeq": 0}), 400)


@scenario("debugBundle", "replay", "agent-platform-full", needs="debugBundle.supported")
def bundle(target: Target) -> None:
    """A run is told as one document, without what another tenant may see."""
    run_id = target.start("conformance-noop")
    target.wait(run_id, "completed")
    found = target.read(f"/v1/runs/{run_id}/debug-bundle")
    has(found, {"bundleVersion", "run", "events"}, "the bundle")
    expect(found["events"], "the bundle has no events")
    refused(target.get(f"/v1/runs/{run_id}/debug-bundle", key=""), 401)


@scenario("fixtures", "discovery", "fixtures", needs="fixtures")
def fixtures(target: Target) -> None:
    """Every workflow that discovery lists is there."""
    for name in target.flag("fixtures"):
        answer = target.get(f"/v1/workflows/{name}")
        if answer.status_code == 405:
            raise NotApplicable("the host shows no workflows")
        expect(answer.status_code == 200, f"{name} is listed and not there")
