"""Sessions: list, show, name, fork, move, export, import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected, reading
from forestay.cli.files import read_bytes, write_file
from forestay.cli.output import Answer, note
from forestay.cli.session_text import entry_line, session_line
from forestay.kernel import Problem

app = Group("session")

SessionId = Annotated[
    str, typer.Argument(help="A session's id, or how it begins; `last` is the one that changed last.")
]
Entry = Annotated[str | None, typer.Option("--entry", help="An entry's id; default: where the session stands.")]


async def found(host: Connection, named: str) -> str:
    """Return the session id for what a person typed: an id, the beginning of one, or `last`."""
    sessions = (await host.get("/host/v1/sessions", limit=1000))["sessions"]
    if named == "last" and sessions:
        return str(sessions[0]["sessionId"])
    fitting = [item["sessionId"] for item in sessions if item["sessionId"].startswith(named)]
    if named in fitting or len(fitting) == 1:
        return named if named in fitting else str(fitting[0])
    if fitting:
        raise Problem("invalid_usage", f"{named[:80]} begins several sessions.", at="SESSION", sessions=fitting[:20])
    raise Problem("not_found", f"There is no session {named[:80]}.", fix="`forestay session list` names them.")


@app.command("list", using=reading)
async def list_(
    host: Connection, limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=1000)] = 20
) -> Answer:
    """The sessions, the one that changed last first."""
    listed = await host.get("/host/v1/sessions", limit=limit)
    return Answer(listed, human=map(session_line, listed["sessions"]))


@app.command("show", using=reading)
async def show(
    host: Connection,
    session: SessionId,
    all_of_it: Annotated[bool, typer.Option("--all", help="Other branches too.")] = False,
) -> Answer:
    """The entries of a session: the branch that it stands on."""
    shown = await host.get(f"/host/v1/sessions/{await found(host, session)}")
    entries = shown["entries"] if all_of_it else _branch(shown)
    return Answer({**shown, "entries": entries}, human=[entry_line(entry, shown["leaf"]) for entry in entries])


@app.command("name", using=connected)
async def name(host: Connection, session: SessionId, text: Annotated[str, typer.Argument(help="The name.")]) -> Any:
    """Give a session a name."""
    return await host.post(f"/host/v1/sessions/{await found(host, session)}", {"name": text})


@app.command("move", using=connected)
async def move(
    host: Connection, session: SessionId, entry: Annotated[str, typer.Argument(help="The entry to go on from.")]
) -> Any:
    """Go on from an earlier entry; what came after it stays as another branch."""
    return await host.post(f"/host/v1/sessions/{await found(host, session)}", {"entryId": entry})


@app.command("fork", using=connected)
async def fork(
    host: Connection,
    session: SessionId,
    entry: Entry = None,
    before: Annotated[bool, typer.Option("--before", help="Leave out that message of the user.")] = False,
) -> Answer:
    """Begin a session with the branch of another one, to its leaf or to an entry."""
    body = {"before": before, **({"entryId": entry} if entry else {})}
    made = await host.post(f"/host/v1/sessions/{await found(host, session)}/fork", body)
    return Answer(made, human=[made["sessionId"]])


@app.command("export", using=reading)
async def export(
    host: Connection,
    session: SessionId,
    to: Annotated[Path | None, typer.Option("--to", help="The file; default: standard output.")] = None,
) -> Answer | None:
    """Write a session as a file of pi (JSON lines)."""
    made = await host.get(f"/host/v1/sessions/{await found(host, session)}/file")
    if to is None:
        sys.stdout.write(made["file"])
        return None
    write_file(to, made["file"])
    lines = made["file"].count("\n")
    return Answer({"sessionId": made["sessionId"], "file": str(to), "lines": lines}, human=[f"{lines} lines in {to}"])


@app.command("import", using=connected)
async def import_(
    host: Connection, file: Annotated[Path, typer.Argument(help="A session file of pi, or - for standard input.")]
) -> Answer:
    """Take in a session file of pi, of version 1, 2 or 3."""
    try:
        text = read_bytes(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem("schema_mismatch", "The file is not UTF-8.", at=str(file)) from error
    made = await host.post("/host/v1/sessions/import", {"file": text})
    note(f"Go on with it: forestay ask --session {made['sessionId']} QUESTION")
    return Answer(made, human=[made["sessionId"]])


def _branch(shown: dict[str, Any]) -> list[dict[str, Any]]:
    by_id = {entry["id"]: entry for entry in shown["entries"]}
    path, at = [], by_id.get(shown["leaf"])
    while at is not None:
        path.append(at)
        at = by_id.get(at["parentId"])
    return path[::-1]
