"""Evaluations: suites, and an agent's scorecard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected, json_object, reading
from forestay.cli.output import Answer
from forestay.kernel import Problem

app = Group("eval")


@app.command("put", using=connected)
async def put(
    host: Connection, suite: Annotated[str, typer.Argument(help="A suite: JSON, @FILE, or - for standard input.")]
) -> Answer:
    """Keep a suite on the host; a version that is there stays as it is."""
    made = await host.post("/host/v1/eval-suites", json_object(suite, "SUITE"))
    return Answer(made, human=[f"{made['ref']}: {made['tasks']} tasks"])


@app.command("run", using=connected)
async def run(
    host: Connection,
    suite: Annotated[str, typer.Argument(help="suiteId@version")],
    agent: Annotated[str, typer.Argument(help="The agent's id.")],
    version: Annotated[str | None, typer.Option(help="The agent's version; default: the newest.")] = None,
    mode: Annotated[list[str] | None, typer.Option(help="A mode of the suite; may be repeated.")] = None,
    trials: Annotated[int, typer.Option(min=1, max=100, help="How often each task is tried.")] = 1,
    baseline: Annotated[str | None, typer.Option(help="The run that a regression is measured against.")] = None,
) -> Answer:
    """Evaluate an agent and show its scorecard; one that does not pass exits with a problem."""
    given = {"agentVersion": version, "evalModes": mode or None, "evalTrials": trials, "baselineRunId": baseline}
    options = {name: value for name, value in given.items() if value is not None}
    body = {"mode": "eval", "evalSuiteRef": suite, "agentId": agent, "configurable": options}
    made = await host.post("/v1/runs", body)
    async for _ in host.events(made["runId"]):
        pass
    return _card(made["runId"], await host.get(f"/v1/runs/{made['runId']}/eval-summary"))


@app.command("show", using=reading)
async def show(host: Connection, run: Annotated[str, typer.Argument(help="The evaluation's run.")]) -> Answer:
    """The scorecard of an evaluation that has ended."""
    return _card(run, await host.get(f"/v1/runs/{run}/eval-summary"))


def _card(run_id: str, card: dict[str, Any]) -> Answer:
    problem = None
    if not card["passed"]:
        fix = "Look at the tasks that scored low: each is a run of its own, `forestay run show RUN`."
        problem = Problem("eval_gate_unmet", "The agent did not pass.", fix=fix, evalRunId=run_id)
    return Answer({"runId": run_id, **card}, human=_lines(run_id, card), problem=problem)


def _lines(run_id: str, card: dict[str, Any]) -> Iterator[str]:
    yield f"{card['suiteId']}@{card['suiteVersion']}  {'passed' if card['passed'] else 'did not pass'}"
    yield f"score      {card['aggregateScore']:.3f}"
    for item in card.get("taskScores", card.get("tasks", ())):
        yield f"  {item['taskId']:<24} {item['score']:.3f}"
    yield f"run        {run_id}"
