"""What a project brings and what people decided: trust, resources, grants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay.cli.output import Answer, answers
from forestay.kernel import config

if TYPE_CHECKING:
    from rich.console import Console

    from forestay.kernel import Ledger

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
grants_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(grants_app, name="grants", help="What extensions were granted and denied.")

Data = Annotated[Path | None, typer.Option("--data", help="Where the ledger is; default: data.dir.")]


@app.command("trust")
@answers("ext.trust")
async def trust(
    folder: Annotated[Path, typer.Argument(help="A project folder.")] = Path(),
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the trust back.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Only say how it stands.")] = False,
    user: Annotated[bool, typer.Option("--user", help="Your own folder instead: what lies in your home.")] = False,
    data: Data = None,
) -> Answer:
    """Let a project's own extensions run, or yours. Trust is bound to their content: a changed file asks again."""
    from forestay.extensions import USER, Trust

    async with opened_ledger(data) as ledger:
        if user:
            folder, trusting = Path.home(), Trust(ledger, places=USER)
        else:
            trusting = Trust(ledger, config.load(folder).config.extensions.paths)
        if withdraw:
            await trusting.withdraw(folder)
        elif not show:
            await trusting.give(folder)
        standing = await trusting.standing(folder)
    return Answer({"state": standing.state, **msgspec.to_builtins(standing)})


@app.command("resources")
@answers("ext.resources")
async def resources(
    folder: Annotated[Path, typer.Argument(help="A project folder.")] = Path(), data: Data = None
) -> Answer:
    """List the extensions, skills, prompt templates and themes of a project, its packages and the user."""
    from forestay.extensions import USER, Trust, named
    from forestay.extensions import discover_resources as discover

    settings = named(folder)
    found = [msgspec.to_builtins(item) for item in discover(folder, more=settings.resources())]
    async with opened_ledger(data) as ledger:
        standing = await Trust(ledger, config.load(folder).config.extensions.paths).standing(folder)
        users = await Trust(ledger, places=USER).standing(Path.home())
    packages = [
        {"source": item.source, "folder": item.folder and str(item.folder), "problem": item.problem}
        for item in settings.packages
    ]
    problems = [{"file": file, "problem": problem.as_lafs()} for file, problem in settings.problems]
    result = {
        "trust": standing.state,
        "userTrust": users.state,
        "resources": found,
        "packages": packages,
        "problems": problems,
    }

    def show(console: Console) -> None:
        for item in found:
            note = f"  ({item['problem']})" if item["problem"] else ""
            line = f"{item['kind']:<10} {item['name']:<24} {item['scope']:<8} {item['path']}{note}"
            console.print(line, markup=False)
        for item in packages:
            if item["problem"]:
                console.print(f"package    {item['source']} {item['problem']}", markup=False)

    return Answer(result, human=show)


@grants_app.command("list")
@answers("ext.grants.list")
async def grants_list(
    extension: Annotated[str | None, typer.Argument(help="Only this extension.")] = None, data: Data = None
) -> Answer:
    """What was granted and denied, with scope and expiry."""
    from forestay.extensions import Grants
    from forestay.kernel import SystemClock

    clock = SystemClock()
    async with opened_ledger(data) as ledger:
        standing = await Grants(ledger, clock).standing(extension)
    return Answer({"grants": [item.shown(clock.now_ms()) for item in standing]})


@grants_app.command("allow")
@answers("ext.grants.allow")
async def grants_allow(
    extension: str,
    grant: Annotated[str, typer.Argument(help="CAP or CAP:SCOPE.")],
    hours: Annotated[float | None, typer.Option(min=0, help="How long it holds; without, until revoked.")] = None,
    data: Data = None,
) -> dict[str, Any]:
    """Grant a capability to an extension."""
    return await _change(extension, grant, "allow", hours, data)


@grants_app.command("deny")
@answers("ext.grants.deny")
async def grants_deny(
    extension: str,
    grant: Annotated[str, typer.Argument(help="CAP or CAP:SCOPE.")],
    hours: Annotated[float | None, typer.Option(min=0, help="How long it holds; without, until revoked.")] = None,
    data: Data = None,
) -> dict[str, Any]:
    """Deny a capability to an extension: this beats every grant."""
    return await _change(extension, grant, "deny", hours, data)


@grants_app.command("revoke")
@answers("ext.grants.revoke")
async def grants_revoke(
    extension: str,
    capability: Annotated[str | None, typer.Argument(help="Only this capability.")] = None,
    data: Data = None,
) -> dict[str, Any]:
    """Take decisions back."""
    from forestay.extensions import Grants
    from forestay.kernel import SystemClock

    async with opened_ledger(data) as ledger:
        return {"revoked": await Grants(ledger, SystemClock()).revoke(extension, capability)}


async def _change(extension: str, text: str, effect: str, hours: float | None, data: Path | None) -> dict[str, Any]:
    from forestay.extensions import Grants, checked
    from forestay.kernel import SystemClock

    clock = SystemClock()
    expires = None if hours is None else clock.now_ms() + int(hours * 3_600_000)
    grant = msgspec.structs.replace(checked(text), expires_ms=expires, source="user")
    async with opened_ledger(data) as ledger:
        grants = Grants(ledger, clock)
        await (grants.allow if effect == "allow" else grants.deny)(extension, grant)
    return {"extension": extension, "grant": text, "effect": effect, "expiresMs": expires}


@asynccontextmanager
async def opened_ledger(data: Path | None) -> AsyncIterator[Ledger]:
    from forestay.kernel import Ledger

    async with Ledger.open((data or Path(config.load().config.data.dir)) / "ledger.db") as ledger:
        yield ledger
