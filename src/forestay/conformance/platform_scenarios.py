"""Scenarios of what surrounds every agent: model usage, feedback on runs, tool hooks (RFC 0026, 0056, 0064)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from forestay.conformance.scenario import expect, has, same, scenario
from forestay.conformance.target import Target, answered, refused

_PLATFORM = "agent-platform"
_USAGE = {
    "provider", "model", "inputTokens", "outputTokens", "totalTokens", "costEstimateUsd", "currency", "cacheHit",
    "cacheReadTokens", "cacheWriteTokens", "nodeId", "traceId",
}  # fmt: skip
_FEEDBACK = "feedback.supported"
_HOOKS = "toolHooks.prePostEvents"
_STATUSES = {"ok", "error", "forbidden", "rate_limited"}


@scenario("provider-usage", "usage", _PLATFORM, needs="providerUsage.supported")
def usage(target: Target) -> None:
    """A call of a model is told once, with its tokens and its node, before the node ends, and with nothing more."""
    block = target.flag("providerUsage")
    expect(set(block) <= {"supported", "costEstimates", "currency"}, "discovery says more than the contract knows")
    run_id = target.seam("agents/live-invoke", {})["runId"]
    events = target.events(run_id)
    told = [event for event in events if event["type"] == "provider.usage"]
    same(len(told), sum(event["type"] == "agent.reasoned" for event in events), "the number of usage events")
    expect(told, "no call of a model is told")
    for event in told:
        has(event["payload"], {"provider", "model", "inputTokens", "outputTokens"}, "provider.usage")
        expect(set(event["payload"]) <= _USAGE, "provider.usage says more than it may")
        ended = [item["sequence"] for item in events if item["type"] == "node.completed"]
        expect(not ended or event["sequence"] < ended[0], "the usage is told after its node has ended")


def _run(target: Target) -> str:
    run_id = target.start("conformance-noop")
    target.wait(run_id)
    return run_id


def _annotated(target: Target, run_id: str, **signal: Any) -> dict[str, Any]:
    body = {"signal": signal or {"kind": "rating", "rating": 5}}
    made: dict[str, Any] = answered(target.post(f"/v1/runs/{run_id}/annotations", body), 201)
    has(made, {"annotationId", "target", "signal", "actor", "createdAt"}, "an annotation")
    return made


def _annotations(target: Target, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = target.read(f"/v1/runs/{run_id}/annotations")["annotations"]
    return found


@scenario("feedback-capability-shape", "feedback", _PLATFORM, needs=_FEEDBACK)
def feedback_shape(target: Target) -> None:
    """What discovery says of feedback is what the contract lets it say."""
    block = target.flag("feedback")
    expect(set(block.get("targets") or ()) <= {"run", "event", "node"}, "a target is none")
    expect(set(block.get("signals") or ()) <= {"rating", "correction", "label", "flag"}, "a signal is none")


@scenario("feedback-record-and-list", "feedback", _PLATFORM, needs=_FEEDBACK)
def recorded(target: Target) -> None:
    """An annotation is kept and listed; one that does not have what its kind says is refused."""
    run_id = _run(target)
    made = _annotated(target, run_id)
    same(made["target"]["runId"], run_id, "the run of the annotation")
    same(_annotations(target, run_id), [made], "the annotations")
    for wrong in ({"kind": "rating"}, {"kind": "rating", "rating": 6}, {"kind": "label"}, {"kind": "applause"}):
        refused(target.post(f"/v1/runs/{run_id}/annotations", {"signal": wrong}), 400)


@scenario("feedback-on-terminal-run", "feedback", _PLATFORM, needs=_FEEDBACK)
def after_the_end(target: Target) -> None:
    """A run that has ended takes an annotation, and its log stays as it is."""
    run_id = _run(target)
    before = target.events(run_id)
    _annotated(target, run_id, kind="flag")
    same(target.events(run_id), before, "the run's log")


@scenario("feedback-cross-tenant-isolation", "feedback", needs=_FEEDBACK)
def others_see_nothing(target: Target) -> None:
    """Another tenant neither reads nor makes an annotation of the run."""
    run_id = _run(target)
    _annotated(target, run_id)
    other = target.other()
    refused(target.get(f"/v1/runs/{run_id}/annotations", key=other), 404, 403)
    body = {"signal": {"kind": "flag"}}
    refused(target.post(f"/v1/runs/{run_id}/annotations", body, key=other), 404, 403)
    same(len(_annotations(target, run_id)), 1, "the number of annotations")


@scenario("feedback-correction-redaction", "feedback", needs=_FEEDBACK)
def without_secrets(target: Target) -> None:
    """A secret in a correction is neither kept nor exported."""
    run_id, secret = _run(target), f"sk-ant-{uuid4().hex}{uuid4().hex}"
    made = _annotated(target, run_id, kind="correction", correction=f"It should have said {secret}.")
    told = f"{made}{_annotations(target, run_id)}"
    if target.flag("debugBundle.supported"):
        told += str(target.read(f"/v1/runs/{run_id}/debug-bundle"))
    expect(secret not in told, "the secret is told")


@scenario("feedback-fork-not-copied", "feedback", needs=_FEEDBACK)
def forked(target: Target) -> None:
    """A fork begins without annotations."""
    run_id = _run(target)
    _annotated(target, run_id)
    if target.flag("replay.supported"):
        fork = answered(target.post(f"/v1/runs/{run_id}:fork", {"mode": "replay"}), 201)["runId"]
        same(_annotations(target, fork), [], "the annotations of the fork")


@scenario("tool-hooks-shape", "tools", _PLATFORM, needs="toolHooks.supported")
def hooks_shape(target: Target) -> None:
    """What discovery says of tool hooks is what the contract lets it say."""
    known = {"supported", "prePostEvents", "perToolAuthorization", "perToolRateLimit"}
    expect(set(target.flag("toolHooks")) <= known, "discovery says more than the contract knows")


@scenario("tool-hooks-content-free", "tools", _PLATFORM, needs=_HOOKS)
def hooked(target: Target) -> None:
    """A call is told by a hash of its arguments, and its end by a status; what is passed is in neither."""
    canary = uuid4().hex

    def call(**args: str) -> dict[str, Any]:
        return target.seam("toolhooks/invoke", {"principal": "kit", "toolName": "web.search", "args": args})

    found = call(q=canary)
    called, returned = found["toolCalled"], found["toolReturned"]
    has(called, {"agentId", "toolName", "callId", "argsHash", "principal", "transport"}, "agent.toolCalled")
    same((called["principal"], called["toolName"]), ("kit", "web.search"), "who called what")
    expect("inputs" not in called and canary not in str(found), "the arguments are told")
    same(returned["callId"], called["callId"], "the call's id")
    expect(returned["status"] in _STATUSES, f"the status is {returned['status']}")
    expect(returned["status"] != "ok" or returned.get("durationMs", -1) >= 0, "a call that ended took no time")
    same(call(q=canary)["toolCalled"]["argsHash"], called["argsHash"], "the hash of the same arguments")
    expect(call(q="other")["toolCalled"]["argsHash"] != called["argsHash"], "other arguments have the same hash")


@scenario("tool-hooks-secret-redaction", "tools", needs=_HOOKS)
def hooked_secret(target: Target) -> None:
    """A secret does not go into the hash: two calls that differ in nothing else have one hash."""

    def hash_of(secret: str) -> str:
        body = {"principal": "kit", "toolName": "web.search", "args": {"apiKey": secret}}
        found: str = target.seam("toolhooks/invoke", body)["toolCalled"]["argsHash"]
        return found

    same(hash_of(f"sk-{uuid4().hex}"), hash_of(f"sk-{uuid4().hex}"), "the hash without its secret")
