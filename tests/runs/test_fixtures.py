"""The contract's workflow fixtures: each runs as its description asks, or is listed with what it waits for."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.runs.check import check_workflow
from holdfast.runs.diff import essence
from holdfast.runs.mock_models import Staged
from holdfast.runs.nodes.core import standard_registry
from holdfast.runs.ports import Caller, ModelDelta, ModelRequest
from holdfast.runs.service import Runs
from holdfast.runs.types import CreateRun, ForkRequest, RunFilter, RunSnapshot
from tests.runs.conftest import Host
from tests.runs.documents import finish, waiting
from tests.runs.events import CONTRACT, check_events

FIXTURES = CONTRACT / "fixtures"
ROOT = Path(__file__).parents[2]
needs_contract = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the contract's fixtures are not at hand")

# What a fixture waits for, by its id.
WAITS = {
    "conformance-a2a-task-roundtrip": "core.a2a.invoke (A2A peers)",
    "conformance-agent-memory-cross-tenant": "memory",
    "conformance-agent-memory-redaction": "memory and secrets",
    "conformance-agent-memory-roundtrip": "memory",
    "conformance-agent-memory-ttl": "memory",
    "conformance-agent-pack-export": "packs",
    "conformance-agent-pack-handoff-schema-validation": "agents.manifestRuntime",
    "conformance-agent-pack-install": "packs",
    "conformance-agent-pack-provenance": "packs",
    "conformance-model-capability-insufficient": "modelCapabilities: models that say what they can do",
    "conformance-phase4-replay-divergence": "a replay that asks the model again; ours never does",
    "conformance-prompt-all-four-kinds": "prompt templates",
    "conformance-prompt-end-to-end": "prompt templates",
    "conformance-wasm-pack-memory-cap-breach": "WASM node packs",
    "conformance-wasm-pack-roundtrip": "WASM node packs",
    "openwop-smoke-byok-roundtrip": "secrets",
    "openwop-smoke-cost-emit": "conformance.cost.emit (cost attributes on trace spans)",
}
# What a host without a capability must refuse, as the fixture's description asks.
REFUSED = {"conformance-agent-channel-dispatch"}
INPUTS: dict[str, dict[str, Any]] = {
    "conformance-delay": {"delayMs": 50},
    "conformance-identity": {"payload": {"a": [1, {"b": None}]}},
    "conformance-idempotent": {"nonce": "n-1"},
}


def documents() -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(FIXTURES.glob("*.json"))] if FIXTURES.is_dir() else []


async def load(runs: Runs) -> None:
    for document in documents():
        if runs.check_workflow(document).valid:
            await runs.put_workflow(document, tenant=None)


async def ran(runs: Runs, name: str, **fields: Any) -> str:
    request = CreateRun(workflow_id=name, inputs=INPUTS.get(name, {}), **fields)
    return (await runs.create_run(request, "acme", "alice", trusted=True)).run_id


async def answer(runs: Runs, run_id: str, value: Any, principal: str = "ann") -> None:
    asked = (await runs.interrupts(run_id, "acme", principal))[0]
    await runs.resolve_by_token(asked.token, {"resumeValue": value})


async def kinds(runs: Runs, run_id: str) -> list[str]:
    events = await runs.events(run_id, "acme")
    check_events(events)
    return [event.type for event in events]


async def child_of(runs: Runs, run_id: str, index: int = 0) -> RunSnapshot:
    told = [event.payload for event in await runs.events(run_id, "acme") if event.type == "node.dispatched"]
    ids = list(dict.fromkeys(item["childRunId"] for item in told))
    return await runs.get_run(ids[index], "acme")


# What a fixture's description asks for; a fixture that is not here completes.


def staged(*entries: dict[str, Any]) -> list[Staged]:
    return [Staged(**entry) for entry in entries]


VALID = {"content": '{"valid":true}'}
# What the provider `mock` is to say, as each fixture's description asks.
PROGRAMS: dict[str, list[Staged]] = {
    "conformance-envelope-nl-to-format-engaged": staged(
        *[{"content": "Well, the result is fine."}] * 3, {"content": '{"result":"ok"}'}
    ),
    "conformance-envelope-recovery-applied": staged({"content": '```json\n{"result":"ok"}\n```'}),
    "conformance-envelope-refusal": staged({"stop_reason": "safety", "refusal_text": "I will not say it."}, VALID),
    "conformance-envelope-retry-attempted": staged({"content": "{not json"}, VALID),
    "conformance-envelope-retry-exhausted": staged(*[{"content": "{not json"}] * 9),
    "conformance-envelope-truncated": staged({"stop_reason": "max_tokens", "content": '{"va'}, VALID),
    "conformance-envelope-truncation-cap-exhaustion": staged(*[{"stop_reason": "max_tokens"}] * 9),
    "conformance-phase4-nondet-tool": staged(VALID, {"content": '{"valid":false}'}),
}


class Echo:
    """A tool source with the one tool that the MCP fixture calls."""

    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller) -> Any:
        return {"content": [{"type": "text", "text": f"{tool}: {arguments['text']}"}]}

    def names(self) -> list[str]:
        return ["echo"]


class Supervising:
    """A model that sends one worker and then is content."""

    def __init__(self) -> None:
        self.decisions = [
            {"kind": "next-worker", "nextWorkerIds": ["conformance-noop"]},
            {"kind": "terminate", "reason": "done"},
        ]

    async def stream(self, request: ModelRequest, caller: Caller) -> AsyncIterator[ModelDelta]:
        yield ModelDelta(text=json.dumps(self.decisions.pop(0)), finish_reason="stop")


async def of(runs: Runs, run_id: str, type: str) -> list[dict[str, Any]]:
    return [event.payload for event in await runs.events(run_id, "acme") if event.type == type]


async def coerced(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).outputs == {"result": {"result": "ok"}}
    assert await of(runs, run_id, "envelope.nlToFormat.engaged") == [
        {"nodeId": "structured-call", "originalEnvelopeType": "TestEnvelope", "fallbackCalls": 1}
    ]
    assert await of(runs, run_id, "envelope.retry.exhausted") == []


async def recovered(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    assert [item["path"] for item in await of(runs, run_id, "envelope.recovery.applied")] == ["markdown-fence"]
    assert await of(runs, run_id, "envelope.retry.attempted") == []


async def refused(runs: Runs, run_id: str) -> None:
    run = await finish(runs, run_id)
    assert run.error is not None and run.error.code == "envelope_refused_by_provider"
    assert "I will not" not in run.error.message
    assert len(await of(runs, run_id, "envelope.refusal")) == 1
    assert len(await of(runs, run_id, "provider.usage")) == 1, "a refusal is not asked again"


async def retried(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    assert [item["attempt"] for item in await of(runs, run_id, "envelope.retry.attempted")] == [2]


async def exhausted(runs: Runs, run_id: str) -> None:
    run = await finish(runs, run_id)
    assert run.error is not None and run.error.code == "envelope_payload_invalid"
    assert [item["finalReason"] for item in await of(runs, run_id, "envelope.retry.exhausted")] == ["parse-error"]


async def truncated(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    assert [item["stopReason"] for item in await of(runs, run_id, "envelope.truncated")] == ["max_tokens"]
    assert [item["reason"] for item in await of(runs, run_id, "envelope.retry.attempted")] == ["truncation"]
    assert runs.mocks.last_budget("acme", "structured-call") == 100, "twice the node's 50"


async def cut_off(runs: Runs, run_id: str) -> None:
    run = await finish(runs, run_id)
    assert run.error is not None and run.error.code == "envelope_truncation_unrecoverable"
    assert [item["finalReason"] for item in await of(runs, run_id, "envelope.retry.exhausted")] == ["truncation"]
    assert [item["kind"] for item in await of(runs, run_id, "cap.breached")] == ["schema"]
    assert len(await of(runs, run_id, "provider.usage")) == runs.limits.schema_rounds, "no call more than allowed"
    assert runs.mocks.last_budget("acme", "structured-call") == 200


async def recalled(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).outputs == {"result": {"valid": True}}
    forked = await runs.fork(run_id, "acme", ForkRequest(mode="replay"))
    again = await runs.events(forked.run_id, "acme")
    assert [essence(event) for event in again] == [essence(event) for event in await runs.events(run_id, "acme")]


async def streamed_text(runs: Runs, run_id: str) -> None:
    mock = {"id": "stream-text", "config": {"tokens": ["Hel", "lo"], "usage": {"inputTokens": 3, "outputTokens": 2}}}
    run_id = await ran(runs, "conformance-stream-text", configurable={"mockProvider": mock})
    run = await finish(runs, run_id)
    assert run.outputs == {"text": "Hello", "model": "stream-text", "finishReason": "stop"}
    chunks = await of(runs, run_id, "output.chunk")
    assert [(item["chunk"], item["isLast"]) for item in chunks] == [("Hel", False), ("lo", True)]
    usage = {"promptTokens": 3, "completionTokens": 2, "totalTokens": 5}
    assert chunks[-1]["meta"] == {"finishReason": "stop", "usage": usage}
    (usage,) = await of(runs, run_id, "provider.usage")
    assert (usage["inputTokens"], usage["outputTokens"]) == (3, 2)


async def mcp_called(runs: Runs, run_id: str) -> None:
    run = await finish(runs, run_id)
    text = {"type": "text", "text": "echo: roundtrip-probe"}
    assert run.outputs == {"result": {"content": [text]}, "contentTrust": "untrusted"}
    (called,), (returned,) = await of(runs, run_id, "agent.toolCalled"), await of(runs, run_id, "agent.toolReturned")
    assert (called["transport"], called["toolName"], called["callId"]) == ("mcp", "echo", returned["callId"])
    assert returned["contentTrust"] == "untrusted"


async def dispatched(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    decided = [item["decision"]["kind"] for item in await of(runs, run_id, "runOrchestrator.decided")]
    assert decided == ["next-worker", "terminate"]
    assert (await child_of(runs, run_id)).status == "completed"


async def approval(runs: Runs, run_id: str) -> None:
    assert (await runs.get_run(run_id, "acme")).status == "waiting-approval"
    await answer(runs, run_id, {"action": "accept"})
    assert (await finish(runs, run_id)).status == "completed"


async def auth_required(runs: Runs, run_id: str) -> None:
    await runs.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "accept"}}, "ann")
    assert (await finish(runs, run_id)).status == "completed"


async def cancellable(runs: Runs, run_id: str) -> None:
    assert (await runs.cancel(run_id, "acme")).status == "cancelled"
    assert (await finish(runs, run_id)).status == "cancelled"


async def cap_breach(runs: Runs, run_id: str) -> None:
    run_id = await ran(runs, "conformance-cap-breach", configurable={"recursionLimit": 3})
    run = await finish(runs, run_id)
    assert run.error is not None and run.error.code == "recursion_limit_exceeded"
    assert "cap.breached" in await kinds(runs, run_id)


async def missing(runs: Runs, run_id: str) -> None:
    run = await finish(runs, run_id)
    assert run.error is not None and run.error.code == "capability_not_provided"


async def channel_ttl(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).channels["events"] == [{"value": "d", "_ts": 1767225600300}]


async def clarification(runs: Runs, run_id: str) -> None:
    assert (await runs.get_run(run_id, "acme")).status == "waiting-input"
    await answer(runs, run_id, {"answers": {"q1": "blue"}})
    assert (await finish(runs, run_id)).outputs == {"answers": {"q1": "blue"}}


async def conversation(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    seen = await kinds(runs, run_id)
    assert "conversation.opened" in seen and "conversation.closed" in seen
    assert not any(kind.startswith("clarification.") for kind in seen)


async def negotiated(runs: Runs, run_id: str) -> None:
    assert (await runs.get_run(run_id, "acme")).status == "waiting-approval"
    (asked,) = await of(runs, run_id, "node.suspended")
    assert (asked["kind"], asked["reason"]) == ("conversation.exchange", "conversation-input")
    await answer(runs, run_id, {"text": "hello"})
    await conversation(runs, run_id)


async def fails(runs: Runs, run_id: str) -> None:
    run = await finish(runs, run_id)
    assert run.status == "failed"
    assert run.error is not None and run.error.code and run.error.message


async def echoes(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).outputs == {"payload": INPUTS["conformance-identity"]["payload"]}


async def external(runs: Runs, run_id: str) -> None:
    assert (await runs.get_run(run_id, "acme")).status == "waiting-external"
    await answer(runs, run_id, {"orderId": "fixture-order-1", "status": "completed"})
    assert (await finish(runs, run_id)).status == "completed"


async def cascade(runs: Runs, run_id: str) -> None:
    await waiting(runs, run_id, "node.dispatched")
    child = await child_of(runs, run_id)
    await runs.cancel(run_id, "acme")
    assert (await finish(runs, child.run_id)).status == "cancelled"
    last = (await runs.events(child.run_id, "acme"))[-1]
    assert last.payload["reason"] == "parent-cancelled"


async def quorum(runs: Runs, run_id: str) -> None:
    for voter in ("a", "b", "c"):
        assert (await runs.get_run(run_id, "acme")).status == "waiting-approval"
        await answer(runs, run_id, {"action": "accept"}, voter)
    assert (await finish(runs, run_id)).status == "completed"


async def low_confidence(runs: Runs, run_id: str) -> None:
    asked = (await waiting(runs, run_id, "node.suspended")).payload
    assert asked["reason"] == "low-confidence" and asked["agentId"] and asked["observed"] < asked["threshold"]
    assert (await runs.interrupts(run_id, "acme"))[0].kind == "low-confidence"
    assert "runOrchestrator.decided" not in await kinds(runs, run_id)
    assert (await runs.get_run(run_id, "acme")).status == "waiting-approval"


async def messages(runs: Runs, run_id: str) -> None:
    found = (await finish(runs, run_id)).channels["messages"]
    assert [item["messageId"] for item in found] == ["m-1"]


async def agent(runs: Runs, run_id: str) -> None:
    run = await finish(runs, run_id)
    assert run.agent is not None and run.agent["agentId"] == "core.conformance.identity-agent"


async def reasoning(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    told = [kind for kind in await kinds(runs, run_id) if kind.startswith("agent.")]
    assert told == ["agent.reasoned", "agent.toolCalled", "agent.toolReturned", "agent.handoff", "agent.decided"]


async def streamed(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    told = [kind for kind in await kinds(runs, run_id) if kind.startswith("agent.")]
    assert told == ["agent.reasoning.delta"] * 3 + ["agent.reasoned"]


async def duration(runs: Runs, run_id: str) -> None:
    run_id = await ran(runs, "conformance-run-duration-breach", configurable={"runTimeoutMs": 1000})
    run = await finish(runs, run_id)
    assert run.error is not None and run.error.code == "run_timeout"


async def mapped_in(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    assert (await child_of(runs, run_id)).inputs == {"childGreeting": "Alice"}


async def mapped_nothing(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    assert (await child_of(runs, run_id)).inputs == {}


async def mapped_out(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).variables["parentResult"] in ("done", "handoff-complete")


async def handed_on(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    assert (await child_of(runs, run_id, 1)).inputs == {"input": "hello"}


async def overridden(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    assert (await child_of(runs, run_id, 0)).inputs == {"input": "default-x-value"}
    assert (await child_of(runs, run_id, 1)).inputs == {"input": "shared-value"}


async def sub_out(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).variables["childOutcome"] == "child-completed"


async def sub_in(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    assert (await child_of(runs, run_id)).variables["receivedPrdId"] == "prd-1"


async def sub_unset(runs: Runs, run_id: str) -> None:
    assert (await finish(runs, run_id)).status == "completed"
    assert (await child_of(runs, run_id)).variables["receivedPrdId"] == "baked-in"


async def sub_held(runs: Runs, run_id: str) -> None:
    await waiting(runs, run_id, "node.dispatched")
    child = await child_of(runs, run_id)
    await waiting(runs, child.run_id, "approval.requested")
    await answer(runs, child.run_id, {"action": "accept"})
    assert (await finish(runs, run_id)).status == "completed"
    assert (await child_of(runs, run_id)).variables["receivedPrdId"] == "seeded-id"


ASKED: dict[str, Any] = {
    "conformance-agent-identity": agent,
    "conformance-agent-low-confidence": low_confidence,
    "conformance-agent-reasoning": reasoning,
    "conformance-agent-reasoning-streaming": streamed,
    "conformance-approval": approval,
    "conformance-cancellable": cancellable,
    "conformance-cap-breach": cap_breach,
    "conformance-capability-missing": missing,
    "conformance-channel-ttl": channel_ttl,
    "conformance-clarification": clarification,
    "conformance-conversation-capability-negotiation": negotiated,
    "conformance-conversation-lifecycle": conversation,
    "conformance-conversation-replay": conversation,
    "conformance-conversation-vs-clarification": conversation,
    "conformance-dispatch-cancellable-child": cancellable,
    "conformance-dispatch-cross-worker-handoff": handed_on,
    "conformance-dispatch-deterministic-fail-child": fails,
    "conformance-dispatch-input-mapping": mapped_in,
    "conformance-dispatch-input-mapping-no-default": mapped_nothing,
    "conformance-dispatch-loop": dispatched,
    "conformance-dispatch-output-mapping": mapped_out,
    "conformance-dispatch-per-worker-override": overridden,
    "conformance-envelope-nl-to-format-engaged": coerced,
    "conformance-envelope-recovery-applied": recovered,
    "conformance-envelope-refusal": refused,
    "conformance-envelope-retry-attempted": retried,
    "conformance-envelope-retry-exhausted": exhausted,
    "conformance-envelope-truncated": truncated,
    "conformance-envelope-truncation-cap-exhaustion": cut_off,
    "conformance-failure": fails,
    "conformance-identity": echoes,
    "conformance-interrupt-auth-required": auth_required,
    "conformance-interrupt-external-event": external,
    "conformance-interrupt-parent-child-cancel": cascade,
    "conformance-interrupt-parent-child-cancel-child": approval,
    "conformance-interrupt-quorum": quorum,
    "conformance-mcp-tool-roundtrip": mcp_called,
    "conformance-message-reducer": messages,
    "conformance-multi-agent-confidence-escalation": low_confidence,
    "conformance-multi-agent-handoff": mapped_out,
    "conformance-orchestrator-low-confidence": low_confidence,
    "conformance-phase4-nondet-tool": recalled,
    "conformance-run-duration-breach": duration,
    "conformance-stream-text": streamed_text,
    "conformance-subworkflow-input-mapping": sub_in,
    "conformance-subworkflow-input-mapping-no-default": sub_unset,
    "conformance-subworkflow-mid-run-mutation": sub_held,
    "conformance-subworkflow-mid-run-mutation-child": approval,
    "conformance-subworkflow-parent": sub_out,
}


@needs_contract
def test_every_fixture_runs_or_says_what_it_waits_for() -> None:
    names = {document["id"] for document in documents()}
    assert len(names) == 82
    assert names >= WAITS.keys() | ASKED.keys()
    assert not WAITS.keys() & ASKED.keys()


def test_the_page_of_rules_lists_what_each_fixture_waits_for() -> None:
    page = (ROOT / "docs" / "reference" / "openwop-rules.md").read_text("utf-8").partition("## Fixtures")[2]
    assert dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \|$", page, re.MULTILINE)) == WAITS
    assert f"{82 - len(WAITS)} run, or are refused, as" in page


@needs_contract
def test_a_fixture_that_pins_a_channel_is_refused_where_there_are_no_deployments() -> None:
    (document,) = (item for item in documents() if item["id"] in REFUSED)
    _, found = check_workflow(document, standard_registry())
    assert [item["at"] for item in found.errors] == ["$.nodes[0].agent.channel"]


@needs_contract
@pytest.mark.parametrize("name", [d["id"] for d in documents() if d["id"] not in WAITS.keys() | REFUSED] or ["none"])
async def test_fixture(host: Host, name: str) -> None:
    async with host(models=Supervising(), tools=Echo()) as runs:
        await load(runs)
        runs.mocks.stage("acme", "structured-call", PROGRAMS.get(name, []))
        run_id = "" if name == "conformance-stream-text" else await ran(runs, name)
        asked = ASKED.get(name)
        if asked is not None:
            await asked(runs, run_id)
        else:
            assert (await finish(runs, run_id)).status == "completed"
        for run in (await runs.list_runs(RunFilter(), "acme")).runs:
            check_events(await runs.events(run.run_id, "acme"))
