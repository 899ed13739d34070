"""The contract's workflows that this host runs as their descriptions say (W23).

A name stands here because `tests/contracts/openwop/test_fixtures.py` drives it against a running host, over HTTP, with
nothing put in that a client could not put in. What the host does not do, or does otherwise, is in the rules page.
"""

from __future__ import annotations

_DONE = frozenset(
    f"conformance-{name}"
    for name in (
        "agent-identity approval cancellable cap-breach channel-ttl clarification "
        "configurable-schema conversation-capability-negotiation conversation-lifecycle conversation-replay "
        "conversation-vs-clarification delay dispatch-cancellable-child dispatch-cross-worker-handoff "
        "dispatch-cross-worker-handoff-child-a dispatch-cross-worker-handoff-child-b "
        "dispatch-deterministic-fail-child dispatch-input-mapping dispatch-input-mapping-child "
        "dispatch-input-mapping-no-default dispatch-output-mapping dispatch-output-mapping-child "
        "dispatch-per-worker-override failure idempotent identity interrupt-auth-required "
        "interrupt-external-event interrupt-quorum multi-node noop orchestrator-dispatch "
        "orchestrator-low-confidence orchestrator-terminate run-duration-breach stream-text subworkflow-child "
        "subworkflow-input-mapping subworkflow-input-mapping-child subworkflow-parent version-fold"
    ).split()
)
# These need what the test seams open: an agent, a model or a message that plays what the test wrote down.
_WITH_SEAMS = frozenset(
    f"conformance-{name}"
    for name in (
        "agent-low-confidence agent-reasoning agent-reasoning-streaming capability-missing "
        "envelope-nl-to-format-engaged envelope-recovery-applied envelope-refusal envelope-retry-attempted "
        "envelope-retry-exhausted envelope-truncated envelope-truncation-cap-exhaustion message-reducer "
        "phase4-nondet-tool"
    ).split()
)


def is_done(workflow_id: str, *, seams: bool) -> bool:
    """Whether the host does what the description of this workflow says."""
    return workflow_id in _DONE or (seams and workflow_id in _WITH_SEAMS)
