"""Deployments: which version of an agent serves, and its transitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected, reading
from forestay.cli.output import Answer

app = Group("deploy")
Agent = Annotated[str, typer.Argument(help="The agent's id.")]
Version = Annotated[str, typer.Argument(help="A version that is installed.")]
Channel = Annotated[Literal["stable", "canary"] | None, typer.Option(help="The channel that the version serves.")]
Reason = Annotated[str | None, typer.Option(help="A short label for the record.")]


@app.command("list", using=reading)
async def list_(host: Connection, agent: Agent) -> Answer:
    """The versions of an agent and where each stands."""
    found = await host.get(_path(agent))
    return Answer({"deployments": found}, human=map(_line, found))


@app.command("promote", using=connected)
async def promote(
    host: Connection,
    agent: Agent,
    version: Version,
    channel: Channel = None,
    canary: Annotated[int | None, typer.Option(min=0, max=100, help="The share of runs that get it.")] = None,
    evaluation: Annotated[str | None, typer.Option("--eval", help="The evaluation run that a gate asks for.")] = None,
) -> Answer:
    """One step up: draft, test, staged, active."""
    more = {"channel": channel, "canaryPercent": canary, "evalRunId": evaluation}
    return await _move(host, agent, version, "promote", more)


@app.command("canary", using=connected)
async def canary(
    host: Connection,
    agent: Agent,
    version: Version,
    percent: Annotated[int, typer.Argument(min=0, max=100, help="The share of runs that get it.")],
) -> Answer:
    """Change the share of a canary."""
    return await _move(host, agent, version, "adjust-canary", {"canaryPercent": percent})


@app.command("pause", using=connected)
async def pause(host: Connection, agent: Agent, version: Version) -> Answer:
    """Take an active version out of service; a promotion brings it back."""
    return await _move(host, agent, version, "pause", {})


@app.command("deprecate", using=connected)
async def deprecate(host: Connection, agent: Agent, version: Version) -> Answer:
    """End an active version for good."""
    return await _move(host, agent, version, "deprecate", {})


@app.command("rollback", using=connected)
async def rollback(host: Connection, agent: Agent, version: Version, reason: Reason = None) -> Answer:
    """Go back to the version that served before."""
    return await _move(host, agent, version, "rollback", {"reason": reason})


async def _move(host: Connection, agent: str, version: str, verb: str, more: dict[str, Any]) -> Answer:
    given = {name: value for name, value in more.items() if value is not None}
    made = await host.post(_path(agent), {"version": version, "transition": verb, **given})
    return Answer(made, human=_said(made))


def _said(made: dict[str, Any]) -> Iterator[str]:
    if "state" in made:
        yield _line(made)
    else:
        yield f"A person must approve this: forestay run show {made['runId']}"


def _line(item: dict[str, Any]) -> str:
    share = f"  {item['canaryPercent']} %" if "canaryPercent" in item else ""
    return f"{item['version']:<12} {item['state']:<12} {', '.join(item.get('channels', ()))}{share}".rstrip()


def _path(agent: str) -> str:
    return f"/v1/agents/{agent}/deployments"
