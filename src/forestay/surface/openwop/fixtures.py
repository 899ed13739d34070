"""The contract's workflows that this host runs as their descriptions say (W23).

`tests/contracts/openwop/test_fixtures.py` drives every name here against a running host, over HTTP, with only what a
client can send. The rules page lists what the host does not do, or does differently.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_DONE = frozenset(
    f"conformance-{name}"
    for name in (
        "a2a-task-roundtrip agent-identity agent-pack-export agent-pack-handoff-schema-validation agent-pack-install "
        "agent-pack-provenance approval cancellable cap-breach channel-ttl clarification configurable-schema "
        "conversation-capability-negotiation conversation-lifecycle conversation-replay conversation-vs-clarification "
        "delay dispatch-cancellable-child dispatch-cross-worker-handoff dispatch-cross-worker-handoff-child-a "
        "dispatch-cross-worker-handoff-child-b dispatch-deterministic-fail-child dispatch-input-mapping "
        "dispatch-input-mapping-child dispatch-input-mapping-no-default dispatch-output-mapping "
        "dispatch-output-mapping-child dispatch-per-worker-override failure idempotent identity "
        "interrupt-auth-required interrupt-external-event interrupt-parent-child-cancel "
        "interrupt-parent-child-cancel-child interrupt-quorum mcp-tool-roundtrip multi-agent-confidence-escalation "
        "multi-agent-handoff multi-agent-handoff-child multi-node noop orchestrator-dispatch "
        "orchestrator-low-confidence orchestrator-terminate run-duration-breach stream-text subworkflow-child "
        "subworkflow-input-mapping subworkflow-input-mapping-child subworkflow-input-mapping-no-default "
        "subworkflow-parent version-fold wasm-pack-memory-cap-breach wasm-pack-roundtrip"
    ).split()
)
# These need the test seams: an agent, a model or a message that plays what the test wrote down.
_WITH_SEAMS = frozenset(
    f"conformance-{name}"
    for name in (
        "agent-channel-dispatch agent-low-confidence agent-memory-cross-tenant agent-memory-redaction "
        "agent-memory-roundtrip agent-memory-ttl agent-reasoning agent-reasoning-streaming capability-missing "
        "dispatch-loop envelope-nl-to-format-engaged envelope-recovery-applied envelope-refusal "
        "envelope-retry-attempted envelope-retry-exhausted envelope-truncated envelope-truncation-cap-exhaustion "
        "message-reducer model-capability-insufficient phase4-nondet-tool prompt-all-four-kinds prompt-end-to-end "
        "subworkflow-mid-run-mutation subworkflow-mid-run-mutation-child"
    ).split()
)


# These need the test seams too, under names of another form.
_SMOKE = frozenset({"openwop-smoke-byok-roundtrip", "openwop-smoke-cost-emit"})


# This one also needs a host whose replays ask models again.
_ASKING = frozenset({"conformance-phase4-replay-divergence"})


def is_done(workflow_id: str, *, seams: bool, asks: bool = False) -> bool:
    """Whether the host does what the description of this workflow says; `asks`: replays ask models again."""
    if workflow_id in _ASKING:
        return seams and asks
    return workflow_id in _DONE or (seams and workflow_id in _WITH_SEAMS | _SMOKE)


class Needs(NamedTuple):
    """What a workflow needs, beside its node types, to do what it describes."""

    tools: frozenset[str]  # of MCP servers
    secrets: frozenset[str]
    packs: frozenset[str]
    agents: frozenset[str]


def needs(document: dict[str, Any]) -> Needs:
    """Return what a workflow calls, and what its metadata requires."""
    configs = [node["config"] for node in document["nodes"]]
    calls = [config.get("mcp") for config in configs]
    said = document["metadata"]
    return Needs(
        frozenset(str(call["tool"]) for call in calls if isinstance(call, dict)),
        frozenset(config[key] for config in configs for key in ("secretId", "byokSecretId") if key in config),
        frozenset({said["requiresInstalledPack"]} if "requiresInstalledPack" in said else ()),
        frozenset(said[key] for key in ("requiresWorkspaceAgent", "requiresAgentId") if key in said),
    )
