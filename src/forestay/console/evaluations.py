"""Evaluations and budgets: how well agents do, and what they use."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from forestay.console.visit import Visit, page
from forestay.governance import EVALUATION
from forestay.runs import RunFilter

_NEWEST = 50
_CEILINGS = {"tokens": "maxTokens", "cost": "maxCostUsd", "toolCalls": "maxToolCalls", "retries": "maxRetries"}


class Evaluation(msgspec.Struct, frozen=True):
    """One evaluation: of what, when, and its scorecard where it has ended."""

    run_id: str
    agent: str
    suite: str
    status: str
    at: str
    card: dict[str, Any] | None


@page("/evaluations", "evaluations", "runs:read")
async def listing(visit: Visit) -> Response:
    """The newest evaluations with their scorecards."""
    wanted = RunFilter(workflow_id=EVALUATION["id"])
    listed = await visit.host.runs.list_runs(wanted, visit.tenant, limit=_NEWEST)
    return visit.page("evaluations.html", evaluations=[await _evaluation(visit, item.run_id) for item in listed.runs])


@page("/budgets", "budgets", "runs:read")
async def budgets(visit: Visit) -> Response:
    """The accounts that are in use: what was spent, what calls hold, and the ceilings."""
    found = await visit.host.budgets.standings(visit.tenant)
    return visit.page("budgets.html", accounts=found, enforce=visit.host.config.budgets.enforce, ceilings=_CEILINGS)


async def _evaluation(visit: Visit, run_id: str) -> Evaluation:
    shown = await visit.host.runs.get_run(run_id, visit.tenant)
    wanted = shown.inputs.get("wanted") or {}
    agent = f"{wanted.get('agentId', '')} {wanted.get('agentVersion', '')}"
    card = (shown.outputs or {}).get("summary")
    return Evaluation(run_id, agent, str(wanted.get("suiteRef", "")), shown.status, shown.created_at or "", card)
