"""Budgets: what was spent, what calls reserve, and the ceilings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, reading
from forestay.cli.output import Answer

app = Group("budget")
_CEILINGS = {"tokens": "maxTokens", "cost": "maxCostUsd", "toolCalls": "maxToolCalls", "retries": "maxRetries"}


@app.command("list", using=reading)
async def list_(
    host: Connection,
    scope: Annotated[
        Literal["project", "workflow", "agent", "run"] | None, typer.Option(help="Only accounts of this scope.")
    ] = None,
    after: Annotated[str, typer.Option(help="The last account of the page before.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many accounts.")] = 50,
) -> Answer:
    """The accounts of the tenant that are in use."""
    found = await host.get("/host/v1/budgets", scope=scope, after=after or None, limit=limit)
    return Answer(found, human=_lines(found))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    if not found["accounts"]:
        yield "Nothing was spent under a budget yet."
    for item in found["accounts"]:
        yield item["account"]
        for name in sorted({*item["spent"], *item["held"]}):
            limit = item["limits"].get(_CEILINGS[name])
            ceiling = "" if limit is None else f" of {limit:g}"
            held = f", {item['held'][name]:g} held" if name in item["held"] else ""
            yield f"  {name:<10} {item['spent'].get(name, 0):g}{ceiling}{held}"
