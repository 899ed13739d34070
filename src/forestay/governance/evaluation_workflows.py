"""The workflows that an evaluation runs: one for the suite, one for each trial of a task."""

from __future__ import annotations

from typing import Any

TYPE = "forestay.evaluation"
EVALUATION: dict[str, Any] = {
    "id": "forestay-evaluation",
    "name": "Evaluate an agent",
    "version": "1.0.0",
    "nodes": [
        {
            "id": "suite",
            "typeId": TYPE,
            "name": "Suite",
            "position": {"x": 0, "y": 0},
            "config": {},
            "inputs": {"wanted": {"type": "variable", "variableName": "wanted"}},
            "outputRole": "primary",
        }
    ],
    "edges": [],
    "triggers": [{"id": "manual", "type": "manual"}],
    "variables": [{"name": "wanted", "type": "object", "required": True}],
    "metadata": {},
    "settings": {},
}


TASK: dict[str, Any] = {
    **EVALUATION,
    "id": "forestay-evaluation-task",
    "name": "Let an agent do one task of an evaluation",
    "nodes": [
        {
            "id": "agent",
            "typeId": "core.agent",
            "name": "Agent",
            "position": {"x": 0, "y": 0},
            "config": {},
            "inputs": {
                name: {"type": "expression", "expression": f"variables.work.{name}"}
                for name in ("agentId", "agentVersion", "task", "fixtures")
            },
            "outputRole": "primary",
        }
    ],
    "variables": [{"name": "work", "type": "object", "required": True}],
}
