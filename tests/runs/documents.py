"""Small ways to write workflow documents."""

from __future__ import annotations

from typing import Any

from forestay.runs.service import Runs
from forestay.runs.types import CreateRun, RunEvent, RunSnapshot


def node(
    id: str, type_id: str = "core.noop", *, config: Any = None, inputs: Any = None, **fields: Any
) -> dict[str, Any]:
    return {
        "id": id,
        "typeId": type_id,
        "name": id,
        "position": {"x": 0, "y": 0},
        "config": config or {},
        "inputs": inputs or {},
        **fields,
    }


def edge(source: str, target: str, **fields: Any) -> dict[str, Any]:
    return {"id": fields.pop("id", f"{source}-{target}"), "sourceNodeId": source, "targetNodeId": target, **fields}


def when(expression: str) -> dict[str, Any]:
    return {"type": "expression", "expression": expression}


def workflow(id: str, nodes: list[Any], edges: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "id": id,
        "name": id,
        "version": "1.0.0",
        "nodes": nodes,
        "edges": edges or [],
        "triggers": [{"id": "manual", "type": "manual"}],
        "variables": fields.pop("variables", []),
        "metadata": {},
        "settings": fields.pop("settings", {}),
        **fields,
    }


async def start(runs: Runs, document: dict[str, Any], inputs: dict[str, Any] | None = None, **fields: Any) -> str:
    """Store a workflow and start a run of it."""
    await runs.put_workflow(document, tenant=None)
    request = CreateRun(workflow_id=document["id"], inputs=inputs or {}, **fields)
    return (await runs.create_run(request, "acme", "alice", trusted=True)).run_id


async def finish(runs: Runs, run_id: str) -> RunSnapshot:
    """Wait for the run's end."""
    async for _ in runs.follow(run_id, "acme"):
        pass
    return await runs.get_run(run_id, "acme")


async def waiting(runs: Runs, run_id: str, *types: str) -> RunEvent:
    """Wait until the run's log holds an event of one of `types`."""
    async for event in runs.follow(run_id, "acme"):
        if event.type in types:
            return event
    raise AssertionError(f"the run ended before {types}")


async def kinds(runs: Runs, run_id: str) -> list[str]:
    return [event.type for event in await runs.events(run_id, "acme")]
