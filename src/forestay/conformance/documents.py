"""The workflows that scenarios run: the contract's fixtures where the host has them, else stand-ins that we store."""

from __future__ import annotations

import itertools
from typing import Any


def node(id: str, type_id: str, config: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "typeId": type_id,
        "name": id.title(),
        "position": {"x": 0, "y": 0},
        "config": config or {},
        "inputs": {},
        **more,
    }


def workflow(id: str, *nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Build a workflow whose nodes run in a row, unless `edges` says otherwise."""
    row = [
        {"id": f"e{index}", "sourceNodeId": first["id"], "targetNodeId": second["id"]}
        for index, (first, second) in enumerate(itertools.pairwise(nodes))
    ]
    return {
        "id": id,
        "name": id,
        "version": "1.0.0",
        "nodes": list(nodes),
        "edges": row,
        "triggers": [{"id": "manual", "type": "manual"}],
        "variables": [],
        "metadata": {},
        "settings": {},
        **more,
    }


def variable(name: str, type: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **more}


def from_variable(name: str) -> dict[str, Any]:
    return {"type": "variable", "variableName": name}


_APPROVAL = {"title": "Go on?", "description": "Somebody must say so.", "actions": ["accept", "reject"]}
_QUESTIONS = {"questions": [{"id": "q1", "question": "Which colour?"}]}
_SIZES = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}, "additionalProperties": False}

_MOCK_AI = "local.sample.demo.mock-ai"


def _prompt(name: str) -> str:
    return f"prompt:conformance.prompt.{name}@1.0.0"


STAND_INS: dict[str, dict[str, Any]] = {
    "conformance-noop": workflow("kit-noop", node("start", "core.noop")),
    "conformance-multi-node": workflow("kit-multi-node", *(node(f"step{number}", "core.noop") for number in range(3))),
    "conformance-identity": workflow(
        "kit-identity",
        node("echo", "core.identity", inputs={"payload": from_variable("payload")}),
        variables=[variable("payload", "string", required=True)],
    ),
    "conformance-cancellable": workflow("kit-cancellable", node("wait", "core.delay", {"delayMs": 600_000})),
    "conformance-approval": workflow("kit-approval", node("gate", "core.approvalGate", _APPROVAL)),
    "conformance-clarification": workflow("kit-clarification", node("ask", "core.clarificationGate", _QUESTIONS)),
    "conformance-failure": workflow("kit-failure", node("breaks", "core.fail", {"code": "kit_broke"})),
    "conformance-prompt-end-to-end": workflow(
        "kit-prompt-end-to-end", node("writer", _MOCK_AI, {"systemPromptRef": _prompt("writer-system")})
    ),
    "conformance-prompt-all-four-kinds": workflow(
        "kit-prompt-all-four-kinds",
        node(
            "all-kinds",
            _MOCK_AI,
            {
                "systemPromptRef": _prompt("writer-system"),
                "userPromptRef": _prompt("writer-user"),
                "schemaHintPromptRef": _prompt("schema-hint"),
                "fewShotPromptRefs": [_prompt("few-shot"), _prompt("few-shot-2")],
            },
        ),
    ),
    "conformance-configurable-schema": workflow(
        "kit-configurable-schema", node("start", "core.noop"), configurableSchema=_SIZES
    ),
}
"""Workflows in place of the contract's fixtures, by the fixture's name."""
