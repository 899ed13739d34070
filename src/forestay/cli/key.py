"""API keys: make, list, revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.cli.connection import Data, Key, Url, connected
from forestay.cli.output import Answer, answers

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """API keys: make, list, revoke."""


@app.command("create")
@answers("key.create")
async def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    scope: Annotated[list[str] | None, typer.Option(help="A scope; may be repeated; default: all of yours.")] = None,
    principal: Annotated[str | None, typer.Option(help="Who acts with it.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Another tenant than yours; for the operator.")] = None,
    expires: Annotated[str | None, typer.Option(help="RFC 3339 time at which it ends.")] = None,
    test: Annotated[
        bool, typer.Option("--test", help="A test key: mock providers and forced engine versions.")
    ] = False,
    url: Url = None,
    key: Key = None,
    data: Data = None,
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
    body = {field: value for field, value in given.items() if value is not None}
    async with connected(url, key, data) as host:
        made = await host.post("/host/v1/keys", body)
    return Answer(made, human=lambda console: console.print(f"{made['apiKey']}\n[dim]Keep it: it is shown once.[/dim]"))


@app.command("list")
@answers("key.list")
async def list_(url: Url = None, key: Key = None, data: Data = None) -> Answer:
    """The tenant's keys."""
    async with connected(url, key, data) as host:
        found = await host.get("/host/v1/keys")
    return Answer(found, human=lambda console: _show(console, found["keys"]))


@app.command("revoke")
@answers("key.revoke")
async def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `key list` shows it.")],
    url: Url = None,
    key: Key = None,
    data: Data = None,
) -> Any:
    """Refuse a key from now on."""
    async with connected(url, key, data) as host:
        return await host.ask("DELETE", f"/host/v1/keys/{key_id}")


def _show(console: Console, keys: list[dict[str, Any]]) -> None:
    for item in keys:
        state = "revoked" if "revokedAt" in item else "until " + item["expiresAt"] if "expiresAt" in item else "valid"
        console.print(f"{item['keyId']}  {item['name']:<20} {item['tenant']:<16} {state}", markup=False)
