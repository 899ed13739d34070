"""Memory: list, search and forget what agents keep between runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected, reading
from forestay.cli.output import Answer
from forestay.kernel import Problem

_PATH = "/host/v1/memory"
_SHOWN = 100
app = Group("memory")
Ref = Annotated[str | None, typer.Option("--ref", help="Only this memory; an agent's is its id.")]
Tag = Annotated[str | None, typer.Option(help="Only entries with this tag.")]


@app.command("list", using=reading)
async def list_(
    host: Connection,
    ref: Ref = None,
    tag: Tag = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, the newest first.")] = 50,
) -> Answer:
    """What is remembered, the newest first."""
    found = await host.get(_PATH, memoryRef=ref, tag=tag, limit=limit)
    return Answer(found, human=map(_line, found["memories"]))


@app.command("search", using=connected)
async def search(
    host: Connection,
    query: Annotated[str, typer.Argument(help="What to look for, in your own words.")],
    ref: Ref = None,
    tag: Tag = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, the best first.")] = 10,
) -> Answer:
    """The entries that answer a question, the best first."""
    found = await host.get(_PATH, q=query, memoryRef=ref, tag=tag, limit=limit)
    return Answer(found, human=map(_line, found["memories"]))


@app.command("forget", using=connected)
async def forget(
    host: Connection,
    memory: Annotated[str | None, typer.Argument(help="The id of an entry.")] = None,
    ref: Ref = None,
    tag: Tag = None,
) -> Answer:
    """Forget an entry, or every entry of a memory or with a tag, for good."""
    if (memory is None) == (ref is None and tag is None):
        raise Problem("invalid_usage", "Name one entry, or a memory or a tag with --ref and --tag.")
    if memory is not None:
        await host.ask("DELETE", f"{_PATH}/{memory}")
        return Answer({"forgotten": 1}, human=[f"forgot {memory}"])
    subject = {"memoryRef": ref, "tag": tag}
    made = await host.post(f"{_PATH}:forget", {name: value for name, value in subject.items() if value is not None})
    return Answer(made, human=[f"forgot {made['forgotten']}"])


def _line(item: dict[str, Any]) -> str:
    text = " ".join(item["content"].split())
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    tags = f"  [{', '.join(item['tags'])}]" if item["tags"] else ""
    until = f"  until {item['expiresAt']}" if "expiresAt" in item else ""
    return f"{item['memoryId']}  {item['memoryRef']}  {item['createdAt']}  {text}{tags}{until}"
