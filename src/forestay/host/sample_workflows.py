"""Sample workflows that do what some of the contract's fixtures do, under the same ids. Only with the sample seams.

A host needs them for the conformance kit: the kit starts them by id, and the three for memory cannot be stored from
outside. Documents of a folder (`up --workflows`) take precedence.
"""

from __future__ import annotations

from typing import Any

from forestay.conformance import from_variable, node, variable, workflow

_GATE = {"title": "Go on?", "description": "Somebody must say so.", "actions": ["accept", "reject"]}
_OPTIONS = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}, "additionalProperties": False}
_MOCK_AI = "local.sample.demo.mock-ai"


def _prompt(name: str) -> str:
    return f"prompt:conformance.prompt.{name}@1.0.0"


def _waiting(id: str, most_ms: int) -> dict[str, Any]:
    wait = node("wait", "core.delay", inputs={"delayMs": from_variable("delayMs")})
    return workflow(id, wait, variables=[variable("delayMs", "number", defaultValue=most_ms)])


def _probe(id: str, action: str, found: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a workflow whose node tries the memory and leaves its result in a variable."""
    config = {"memoryAction": action, **more.pop("config", {})}
    return workflow(id, node("probe", "core.identity", config, **more), variables=[found])


def _agent(name: str) -> dict[str, Any]:
    return {"agentId": f"core.conformance.{name}-agent", "memoryRef": f"conformance/agent-memory-{name}"}


def sample_workflows() -> list[dict[str, Any]]:
    return [
        workflow("conformance-noop", node("start", "core.noop")),
        workflow("conformance-multi-node", *(node(name, "core.noop") for name in ("first", "second", "third"))),
        workflow(
            "conformance-identity",
            node("echo", "core.identity", inputs={"payload": from_variable("payload")}),
            variables=[variable("payload", "object", required=True)],
        ),
        workflow(
            "conformance-idempotent",
            node("start", "core.noop"),
            variables=[variable("nonce", "string", required=True)],
        ),
        _waiting("conformance-delay", 1000),
        _waiting("conformance-cancellable", 30_000),
        workflow(
            "conformance-failure", node("breaks", "core.fail", {"code": "sample_broke", "message": "On purpose."})
        ),
        workflow("conformance-approval", node("gate", "core.approvalGate", _GATE)),
        workflow(
            "conformance-clarification",
            node("ask", "core.clarificationGate", {"questions": [{"id": "q1", "question": "Which colour?"}]}),
        ),
        workflow("conformance-configurable-schema", node("start", "core.noop"), configurableSchema=_OPTIONS),
        workflow(
            "conformance-prompt-end-to-end", node("writer", _MOCK_AI, {"systemPromptRef": _prompt("writer-system")})
        ),
        workflow(
            "conformance-prompt-all-four-kinds",
            node(
                "writer",
                _MOCK_AI,
                {
                    "systemPromptRef": _prompt("writer-system"),
                    "userPromptRef": _prompt("writer-user"),
                    "schemaHintPromptRef": _prompt("schema-hint"),
                    "fewShotPromptRefs": [_prompt("few-shot"), _prompt("few-shot-2")],
                },
            ),
        ),
        _probe(
            "conformance-agent-memory-roundtrip",
            "write-then-read",
            variable("memoryReadback", "object"),
            agent={**_agent("roundtrip"), "agentId": "core.conformance.memory-agent"},
        ),
        _probe("conformance-agent-memory-ttl", "ttl-probe", variable("memoryList", "array"), agent=_agent("ttl")),
        _probe(
            "conformance-agent-memory-cross-tenant",
            "cross-tenant-probe",
            variable("crossTenantProbe", "array"),
            config={"probeMemoryRef": "conformance/another-tenant/agent-memory"},
        ),
    ]
