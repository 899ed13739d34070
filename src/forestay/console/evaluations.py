"""Evaluations: the scores of agents over time, and two evaluations compared."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from forestay.console.score_chart import Scored, over_time, pair
from forestay.console.visit import Visit, page
from forestay.governance import EVALUATION
from forestay.kernel import Problem
from forestay.runs import RunFilter

_NEWEST = 50


class Evaluation(msgspec.Struct, frozen=True):
    """One evaluation: its agent, suite and time, and its scorecard when it has ended."""

    run_id: str
    agent_id: str
    version: str
    suite: str
    modes: list[str]
    status: str
    at: str
    card: dict[str, Any] | None

    @property
    def agent(self) -> str:
        return f"{self.agent_id} {self.version}".strip()


class Trend(msgspec.Struct, frozen=True):
    """An agent's scores in a suite over time."""

    title: str
    said: str
    svg: str


class Task(msgspec.Struct, frozen=True):
    """One task in two evaluations; None where it was not part of one."""

    task_id: str
    first: float | None
    second: float | None
    svg: str

    @property
    def change(self) -> float | None:
        return None if self.first is None or self.second is None else self.second - self.first


@page("/evaluations", "evaluations", "runs:read")
async def listing(visit: Visit) -> Response:
    """The newest evaluations: their scores over time, and their scorecards to choose two of."""
    found = await newest(visit)
    ended = [item for item in found if item.card is not None]
    second = ended[0] if ended else None
    first = next((item for item in ended[1:] if second is not None and item.suite == second.suite), None)
    return visit.page("evaluations.html", evaluations=found, trends=_trends(found), first=first, second=second)


@page("/evaluations/compare", "evaluations.compare", "runs:read")
async def compare(visit: Visit) -> Response:
    """Two evaluations, task by task."""
    first, second = [await _evaluation(visit, visit.asked(name)) for name in ("first", "second")]
    if first.card is None or second.card is None:
        raise Problem(
            "state_conflict", "An evaluation that is compared has ended.", fix="Choose two that have a score."
        )
    tasks = _tasks(first.card, second.card)
    changes = [item.change for item in tasks if item.change is not None]
    return visit.page(
        "evaluation_compare.html",
        first=first,
        second=second,
        tasks=tasks,
        better=sum(change > 0 for change in changes),
        worse=sum(change < 0 for change in changes),
    )


async def newest(visit: Visit) -> list[Evaluation]:
    """Return the newest evaluations of the tenant."""
    wanted = RunFilter(workflow_id=EVALUATION["id"])
    listed = await visit.host.runs.list_runs(wanted, visit.tenant, limit=_NEWEST)
    return [await _evaluation(visit, item.run_id) for item in listed.runs]


def _trends(newest_first: list[Evaluation]) -> list[Trend]:
    """Return a chart for each agent, suite and mode with more than one score."""
    series: dict[tuple[str, str], list[Scored]] = {}
    for item in reversed(newest_first):
        if item.card is not None:
            point = Scored(
                item.at, item.version, item.card["aggregateScore"], item.card["passed"], f"/runs/{item.run_id}"
            )
            series.setdefault((item.agent_id, f"{item.suite} {', '.join(item.modes)}".strip()), []).append(point)
    return [
        Trend(agent, suite, over_time(f"Scores of {agent} in {suite}", points))
        for (agent, suite), points in series.items()
        if len(points) > 1
    ]


def _tasks(first: dict[str, Any], second: dict[str, Any]) -> list[Task]:
    before = {item["taskId"]: item["score"] for item in first["tasks"]}
    after = {item["taskId"]: item["score"] for item in second["tasks"]}
    return [
        Task(name, before.get(name), after.get(name), pair(before.get(name), after.get(name)))
        for name in {**before, **after}
    ]


async def _evaluation(visit: Visit, run_id: str) -> Evaluation:
    shown = await visit.host.runs.get_run(run_id, visit.tenant)
    if shown.workflow_id != EVALUATION["id"]:
        raise Problem("not_found", "This run is no evaluation.", runId=run_id)
    wanted = shown.inputs.get("wanted") or {}
    return Evaluation(
        run_id,
        str(wanted.get("agentId", "")),
        str(wanted.get("agentVersion", "")),
        str(wanted.get("suiteRef", "")),
        list(wanted.get("modes") or ()),
        shown.status,
        shown.created_at or "",
        (shown.outputs or {}).get("summary"),
    )
