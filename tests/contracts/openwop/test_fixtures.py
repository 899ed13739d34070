"""Every fixture that discovery lists, driven as its description says, against a host that was started for it (W23).

The workflows are the contract's own where they are at hand, else ours under the contract's names. Nothing is put in but
what a client can put in: runs, answers, keys, and with the test seams the words of the mock provider.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from forestay.runs import RunEvent
from forestay.surface.openwop.fixtures import is_done
from tests.contracts.openwop.fixture_drivers import (
    agent,
    approval,
    auth_required,
    blown_up,
    cancellable,
    cancelled_with_parent,
    cap_breach,
    channel_kept,
    channel_ttl,
    clarification,
    coerced,
    completes,
    configurable,
    conversation,
    cut_off,
    delay,
    duration,
    echoes,
    exhausted,
    external,
    fails,
    greeted,
    handed_on,
    in_order,
    looped,
    low_confidence,
    mapped_in,
    mapped_nothing,
    mapped_out,
    memory_expiry,
    memory_foreign,
    memory_roundtrip,
    messages,
    missing,
    mutated,
    once,
    orchestrated,
    overridden,
    prompts,
    quorum,
    reasoning,
    reasoning_streamed,
    recalled,
    recovered,
    refused_by_model,
    refused_on_replay,
    retried,
    streamed_text,
    sub_in,
    sub_out,
    sub_unset,
    terminated,
    truncated,
    version_fold,
)
from tests.contracts.openwop.fixture_hosts import (
    FOLDER,
    OWN,
    Seeded,
    asking,
    kept_secrets,
    own,
    packs,
    peered,
    peers,
    plain,
    seams,
    staffed,
)
from tests.contracts.openwop.outward_drivers import (
    a2a_task,
    cost_attributed,
    escalated,
    gated,
    handed_over,
    handoff_checked,
    mcp_tool,
    memory_redacted,
    pack_exported,
    pack_installed,
    pack_source,
    secret_resolved,
)
from tests.runs.events import check_events

__all__ = ["asking", "kept_secrets", "own", "packs", "peered", "peers", "plain", "seams", "staffed"]  # fixtures
# A fixture that is not here, and is listed, is a failure of this suite.
DRIVERS: dict[str, Callable[[Seeded, str], None]] = {
    "a2a-task-roundtrip": a2a_task,
    "agent-channel-dispatch": channel_kept,
    "agent-identity": agent,
    "agent-low-confidence": low_confidence,
    "agent-memory-cross-tenant": memory_foreign,
    "agent-memory-redaction": memory_redacted,
    "agent-memory-roundtrip": memory_roundtrip,
    "agent-memory-ttl": memory_expiry,
    "agent-pack-export": pack_exported,
    "agent-pack-handoff-schema-validation": handoff_checked,
    "agent-pack-install": pack_installed,
    "agent-pack-provenance": pack_source,
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
    "dispatch-loop": looped,
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
    "interrupt-parent-child-cancel": cancelled_with_parent,
    "interrupt-parent-child-cancel-child": approval,
    "interrupt-quorum": quorum,
    "mcp-tool-roundtrip": mcp_tool,
    "message-reducer": messages,
    "model-capability-insufficient": gated,
    "multi-agent-confidence-escalation": escalated,
    "multi-agent-handoff": handed_over,
    "multi-agent-handoff-child": completes,
    "multi-node": in_order,
    "noop": completes,
    "openwop-smoke-byok-roundtrip": secret_resolved,
    "openwop-smoke-cost-emit": cost_attributed,
    "orchestrator-dispatch": orchestrated,
    "orchestrator-low-confidence": low_confidence,
    "orchestrator-terminate": terminated,
    "phase4-nondet-tool": recalled,
    "phase4-replay-divergence": refused_on_replay,
    "prompt-all-four-kinds": prompts,
    "prompt-end-to-end": prompts,
    "run-duration-breach": duration,
    "stream-text": streamed_text,
    "subworkflow-child": completes,
    "subworkflow-input-mapping": sub_in,
    "subworkflow-input-mapping-child": completes,
    "subworkflow-input-mapping-no-default": sub_unset,
    "subworkflow-mid-run-mutation": mutated,
    "subworkflow-mid-run-mutation-child": approval,
    "subworkflow-parent": sub_out,
    "version-fold": version_fold,
    "wasm-pack-memory-cap-breach": blown_up,
    "wasm-pack-roundtrip": greeted,
}


def workflow_of(name: str) -> str:
    return name if name.startswith("openwop-") else f"conformance-{name}"


PACKED = {"wasm-pack-memory-cap-breach", "wasm-pack-roundtrip"}
STAFFED = {name for name in DRIVERS if name.startswith("agent-pack-")}
SECRET = {"agent-memory-redaction", "openwop-smoke-byok-roundtrip", "openwop-smoke-cost-emit"}
PEERED = {"a2a-task-roundtrip", "mcp-tool-roundtrip"}
ASKING = {"phase4-nondet-tool", "phase4-replay-divergence"}
APART = PACKED | PEERED | STAFFED | SECRET
CASES = [
    *(
        (kind, name)
        for kind in ("plain", "seams")
        for name in DRIVERS
        if name not in APART and is_done(workflow_of(name), seams=kind == "seams")
    ),
    *(("asking", name) for name in sorted(ASKING)),
    *(("own", name) for name in sorted(OWN)),
    *(("packs", name) for name in sorted(PACKED)),
    *(("peered", name) for name in sorted(PEERED)),
    *(("staffed", name) for name in sorted(STAFFED)),
    *(("kept_secrets", name) for name in sorted(SECRET)),
]


@pytest.mark.parametrize("kind", ["plain", "seams", "own"])
def test_w23_every_fixture_that_is_listed_has_a_driver_and_can_be_loaded(
    kind: str, request: pytest.FixtureRequest
) -> None:
    host: Seeded = request.getfixturevalue(kind)
    listed = {name.removeprefix("conformance-") for name in host.capabilities["fixtures"]}
    assert listed <= DRIVERS.keys()
    assert {"noop", "identity", "approval", "stream-text"} <= listed or (kind, listed) == ("own", OWN)
    loaded = {item["workflowId"] for item in host.api.get("/v1/workflows").json()["workflows"]}
    assert loaded >= set(host.capabilities["fixtures"])


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_w23_a_fixture_that_is_listed_does_what_it_says(kind: str, name: str, request: pytest.FixtureRequest) -> None:
    host: Seeded = request.getfixturevalue(kind)
    workflow = workflow_of(name)
    if workflow not in host.capabilities["fixtures"]:
        assert not FOLDER.is_dir(), "a fixture that is at hand, and that this host does, is listed"
        pytest.skip("the contract's fixtures are not at hand")
    host.started.clear()
    DRIVERS[name](host, workflow)
    for run_id in host.started:  # and each event is what the contract's schemas say, where they are at hand
        check_events(msgspec.convert(host.api.events(run_id), list[RunEvent]))
