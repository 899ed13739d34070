"""Credentials: secrets that requests carry, and the hosts they may go to."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, Literal

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected
from forestay.cli.output import Answer
from forestay.kernel import Problem

_PATH = "/host/v1/credentials"
_SIGN_INS = "/host/v1/oauth/authorizations"
app = Group("credential")
Name = Annotated[str, typer.Argument(help="The credential's id; workflows name it.")]


@app.command("add", using=connected)
async def add(
    host: Connection,
    name: Name,
    audience: Annotated[list[str], typer.Option(help="A host that it is for, or *.domain; may be repeated.")],
    from_env: Annotated[str | None, typer.Option(help="The variable that holds the value; else stdin.")] = None,
    header: Annotated[str, typer.Option(help="The header that carries it.")] = "Authorization",
    prefix: Annotated[str, typer.Option(help="What stands before it in the header.")] = "Bearer ",
    expires: Annotated[str | None, typer.Option(help="When it ends: 2027-01-31T00:00:00Z.")] = None,
    outside: Annotated[
        Literal["deny", "downgrade"], typer.Option(help="Elsewhere: refuse the request, or send it without.")
    ] = "deny",
    approval: Annotated[bool, typer.Option("--approval", help="A person agrees to each request.")] = False,
    workflow: Annotated[list[str] | None, typer.Option(help="Only for workflows like this; may be repeated.")] = None,
) -> Answer:
    """Keep a credential; its value is read from a variable or from stdin, and never shown."""
    body: dict[str, Any] = {
        "value": _value(from_env),
        "audiences": audience,
        "header": header,
        "prefix": prefix,
        "outside": outside,
        "approval": approval,
        "workflows": workflow or [],
    }
    made = await host.ask("PUT", f"{_PATH}/{name}", body | ({"expiresAt": expires} if expires else {}))
    return Answer(made, human=[_line(made)])


@app.command("authorize", using=connected)
async def authorize(
    host: Connection,
    provider: Annotated[str, typer.Argument(help="A provider of the settings, [oauth.providers.NAME].")],
    name: Annotated[str | None, typer.Option(help="The credential's id; default: the provider's.")] = None,
    approval: Annotated[bool, typer.Option("--approval", help="A person agrees to each request.")] = False,
    workflow: Annotated[list[str] | None, typer.Option(help="Only for workflows like this; may be repeated.")] = None,
) -> Answer:
    """Begin to sign in at a provider; its token becomes a credential."""
    body: dict[str, Any] = {"provider": provider, "approval": approval, "workflows": workflow or []}
    made = await host.post(_SIGN_INS, body | ({"credentialId": name} if name else {}))
    told = [
        "Open this address and agree:",
        f"  {made['open']}",
        "If the browser does not get back to the host, give the address that it ends at:",
        "  forestay credential finish ADDRESS",
    ]
    return Answer(made, human=told)


@app.command("finish", using=connected)
async def finish(
    host: Connection, address: Annotated[str, typer.Argument(help="The address that the browser ended at.")]
) -> Answer:
    """End a sign-in whose browser could not get back to the host."""
    made = await host.post(f"{_SIGN_INS}:finish", {"address": address})
    return Answer(made, human=[f"{made['credentialId']} can be used now."])


@app.command("list", using=connected)
async def list_(host: Connection) -> Answer:
    """The credentials of the tenant, without their values."""
    found = await host.get(_PATH)
    return Answer(found, human=[_line(item) for item in found["credentials"]] or ["No credentials."])


@app.command("revoke", using=connected)
async def revoke(host: Connection, name: Name) -> Answer:
    """Take a credential back for good."""
    await host.ask("DELETE", f"{_PATH}/{name}")
    return Answer({"revoked": name}, human=[f"revoked {name}"])


def _value(variable: str | None) -> str:
    if variable is not None:
        found = os.environ.get(variable, "")
        if not found:
            raise Problem("invalid_usage", f"The variable {variable} is empty.", at="--from-env")
        return found
    if sys.stdin.isatty():
        return str(typer.prompt("value", hide_input=True, err=True))
    return sys.stdin.read(65_536).strip()


def _line(item: dict[str, Any]) -> str:
    more = [
        *(["asks"] if item["approval"] else []),
        *(["goes without elsewhere"] if item["outside"] == "downgrade" else []),
        *([f"only {', '.join(item['workflows'])}"] if item["workflows"] else []),
        *([f"until {item['expiresAt']}"] if "expiresAt" in item else []),
    ]
    return "  ".join([item["credentialId"], item["issuer"], ", ".join(item["audiences"]), *more])
