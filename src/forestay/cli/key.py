"""API keys: make, list, revoke."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected, reading
from forestay.cli.output import Answer

app = Group("key")


@app.command("create", using=connected)
async def create(
    host: Connection,
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    scope: Annotated[list[str] | None, typer.Option(help="A scope; may be repeated; default: all of yours.")] = None,
    principal: Annotated[str | None, typer.Option(help="Who acts with it.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Another tenant than yours; for the operator.")] = None,
    expires: Annotated[str | None, typer.Option(help="RFC 3339 time at which it ends.")] = None,
    test: Annotated[
        bool, typer.Option("--test", help="A test key: mock providers and forced engine versions.")
    ] = False,
) -> Answer:
    """Make a key of the caller's tenant, or of another that the operator names; it is shown once."""
    given = {
        "name": name,
        "test": test,
        "scopes": scope,
        "principal": principal,
        "tenant": tenant,
        "expiresAt": expires,
    }
    made = await host.post("/host/v1/keys", {field: value for field, value in given.items() if value is not None})
    return Answer(made, human=[made["apiKey"], "Keep it: it is shown once."])


@app.command("list", using=reading)
async def list_(host: Connection) -> Answer:
    """The tenant's keys."""
    found = await host.get("/host/v1/keys")
    return Answer(found, human=map(_line, found["keys"]))


@app.command("revoke", using=connected)
async def revoke(
    host: Connection, key_id: Annotated[str, typer.Argument(help="The key's id, as `key list` shows it.")]
) -> Any:
    """Refuse a key from now on."""
    return await host.ask("DELETE", f"/host/v1/keys/{key_id}")


def _line(item: dict[str, Any]) -> str:
    state = "revoked" if "revokedAt" in item else "until " + item["expiresAt"] if "expiresAt" in item else "valid"
    return f"{item['keyId']}  {item['name']:<20} {item['tenant']:<16} {state}"
