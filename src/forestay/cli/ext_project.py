"""A project's extensions and people's decisions about them: trust, resources, grants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay.cli.command import Group
from forestay.cli.data_folder import opened_ledger
from forestay.cli.output import Answer
from forestay.kernel import SystemClock, config

if TYPE_CHECKING:
    from forestay.extensions import Grants, Trust
    from forestay.kernel import Ledger

app = Group("ext")
grants_app = app.group("grants", "What extensions were granted and denied.")

Withdraw = Annotated[bool, typer.Option("--withdraw", help="Take the trust back.")]
OnlyShow = Annotated[bool, typer.Option("--show", help="Only say how it stands.")]
GrantText = Annotated[str, typer.Argument(help="CAP or CAP:SCOPE.")]
Hours = Annotated[float | None, typer.Option(min=0, help="How long it holds; without, until revoked.")]


@app.command("trust", using=opened_ledger)
async def trust(
    ledger: Ledger,
    folder: Annotated[Path, typer.Argument(help="A project folder.")] = Path(),
    withdraw: Withdraw = False,
    show: OnlyShow = False,
    user: Annotated[bool, typer.Option("--user", help="Your own folder instead: what lies in your home.")] = False,
) -> Answer:
    """Let a project's own extensions run, or yours. Trust is bound to their content: a changed file asks again."""
    from forestay.extensions import USER, Trust

    if user:
        return await decide_trust(Trust(ledger, places=USER), Path.home(), withdraw, show)
    return await decide_trust(Trust(ledger, config.load(folder).config.extensions.paths), folder, withdraw, show)


async def decide_trust(trust: Trust, folder: Path, withdraw: bool, show: bool) -> Answer:
    """Give trust to a folder, withdraw it, or only show its state."""
    if withdraw:
        await trust.withdraw(folder)
    elif not show:
        await trust.give(folder)
    standing = await trust.standing(folder)
    return Answer({"state": standing.state, **msgspec.to_builtins(standing)})


@app.command("resources", using=opened_ledger)
async def resources(
    ledger: Ledger, folder: Annotated[Path, typer.Argument(help="A project folder.")] = Path()
) -> Answer:
    """List the extensions, skills, prompt templates and themes of a project, its packages and the user."""
    from forestay.extensions import USER, Trust, named
    from forestay.extensions import discover_resources as discover

    settings = named(folder)
    found = [msgspec.to_builtins(item) for item in discover(folder, more=settings.resources())]
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

    lines = [
        f"{item['kind']:<10} {item['name']:<24} {item['scope']:<8} {item['path']}"
        + (f"  ({item['problem']})" if item["problem"] else "")
        for item in found
    ]
    lines += [f"package    {item['source']} {item['problem']}" for item in packages if item["problem"]]
    return Answer(result, human=lines)


@grants_app.command("list", using=opened_ledger)
async def grants_list(
    ledger: Ledger, extension: Annotated[str | None, typer.Argument(help="Only this extension.")] = None
) -> Answer:
    """What was granted and denied, with scope and expiry."""
    clock, grants = _grants(ledger)
    return Answer({"grants": [item.shown(clock.now_ms()) for item in await grants.standing(extension)]})


@grants_app.command("allow", using=opened_ledger)
async def grants_allow(ledger: Ledger, extension: str, grant: GrantText, hours: Hours = None) -> dict[str, Any]:
    """Grant a capability to an extension."""
    return await _decide(ledger, extension, grant, "allow", hours)


@grants_app.command("deny", using=opened_ledger)
async def grants_deny(ledger: Ledger, extension: str, grant: GrantText, hours: Hours = None) -> dict[str, Any]:
    """Deny a capability to an extension: this beats every grant."""
    return await _decide(ledger, extension, grant, "deny", hours)


@grants_app.command("revoke", using=opened_ledger)
async def grants_revoke(
    ledger: Ledger,
    extension: str,
    capability: Annotated[str | None, typer.Argument(help="Only this capability.")] = None,
) -> dict[str, Any]:
    """Take decisions back."""
    return {"revoked": await _grants(ledger)[1].revoke(extension, capability)}


async def _decide(ledger: Ledger, extension: str, text: str, effect: str, hours: float | None) -> dict[str, Any]:
    from forestay.extensions import checked

    clock, grants = _grants(ledger)
    expires = None if hours is None else clock.now_ms() + int(hours * 3_600_000)
    grant = msgspec.structs.replace(checked(text), expires_ms=expires, source="user")
    await (grants.allow if effect == "allow" else grants.deny)(extension, grant)
    return {"extension": extension, "grant": text, "effect": effect, "expiresMs": expires}


def _grants(ledger: Ledger) -> tuple[SystemClock, Grants]:
    from forestay.extensions import Grants

    clock = SystemClock()
    return clock, Grants(ledger, clock)
