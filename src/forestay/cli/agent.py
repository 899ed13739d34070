"""Agents: the tenant's inventory, packs to install, the roster and the org chart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected, json_object, reading
from forestay.cli.output import Answer

app = Group("agent")
Document = Annotated[str, typer.Argument(help="JSON, @FILE, or - for standard input.")]


@app.command("list", using=reading)
async def list_(host: Connection) -> Answer:
    """The agents that runs may name."""
    found = await host.get("/v1/agents")
    return Answer(found, human=(f"{item['agentId']:<40} {item['packVersion']}" for item in found["agents"]))


@app.command("install", using=connected)
async def install(host: Connection, pack: Document) -> Answer:
    """Install a pack of agents; a version that is there stays as it is."""
    made = await host.post("/host/v1/agent-packs", json_object(pack, "PACK"))
    return Answer(made, human=[f"{made['name']} {made['version']}: {', '.join(made['agents'])}"])


@app.command("roster", using=reading)
async def roster(host: Connection) -> Answer:
    """The members that work as these agents."""
    found = await host.get("/v1/agents/roster")
    return Answer(found, human=map(_member, found["roster"]))


@app.command("hire", using=connected)
async def hire(host: Connection, entry: Document) -> Answer:
    """Put a member on the roster, or change it."""
    document = json_object(entry, "ENTRY") or {}
    made = await host.ask("PUT", f"/host/v1/roster/{document.get('rosterId', 'unnamed')}", document)
    return Answer(made, human=[_member(made)])


@app.command("dismiss", using=connected)
async def dismiss(host: Connection, member: Annotated[str, typer.Argument(help="The member's id, host:…")]) -> Any:
    """Take a member off the roster."""
    return await host.ask("DELETE", f"/host/v1/roster/{member}")


@app.command("org-chart", using=reading)
async def org_chart(
    host: Connection,
    put: Annotated[str | None, typer.Option(help="A new chart: JSON, @FILE, or -.")] = None,
) -> Answer:
    """Departments, and who reports to whom."""
    document = json_object(put, "--put")
    found = await (host.get("/v1/agents/org-chart") if document is None else _put(host, document))
    return Answer(found, human=_chart(found))


async def _put(host: Connection, document: dict[str, Any]) -> Any:
    return await host.ask("PUT", "/host/v1/org-chart", document)


def _member(item: dict[str, Any]) -> str:
    state = "" if item.get("enabled", True) else "  (not enabled)"
    return f"{item['rosterId']:<24} {item['persona']:<16} {item['agentRef']['agentId']}{state}"


def _chart(found: dict[str, Any]) -> Iterator[str]:
    for department in found["departments"]:
        above = department.get("parentDepartmentId")
        yield department["name"] + (f" (of {above})" if above else "")
        for member in found["members"]:
            if member["departmentId"] == department["departmentId"]:
                boss = f" reports to {member['reportsTo']}" if member["reportsTo"] else ""
                yield f"  {member['rosterId']}{boss}"
