"""What the host would decide, and by which rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.cli.connection import Data, Key, Url, connected
from forestay.cli.output import Answer, answers
from forestay.kernel import Problem

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
_DENIED = {
    "extension": "capability_denied",
    "tool": "capability_denied",
    "api": "permission_denied",
    "relay": "role_denied",
    "egress": "address_blocked",
}


@app.callback()
def _group() -> None:
    """What the host would decide, and by which rule."""


@app.command("explain")
@answers("policy.explain")
async def explain(
    subject: Annotated[str, typer.Option(help="An extension, an agent, a key's id, a relay role or session, or host.")],
    capability: Annotated[str, typer.Option(help="A capability, tool, relay.OPERATION, egress, or an API scope.")],
    on: Annotated[str | None, typer.Option(help="A path, host, variable, tool, address or tenant.")] = None,
    method: Annotated[str, typer.Option(help="The host call's method, where a grant is limited to some.")] = "",
    url: Url = None,
    key: Key = None,
    data: Data = None,
) -> Answer:
    """Say whether a subject may do something, by the rules in force; a refusal exits as the refusal itself would."""
    async with connected(url, key, data) as host:
        found = await host.get(
            "/host/v1/policy/decision", subject=subject, capability=capability, on=on, method=method or None
        )
    return Answer(found, human=lambda console: _show(console, found), problem=_problem(found))


def _problem(found: dict[str, Any]) -> Problem | None:
    """The problem that the refused caller would get; None where it may go on."""
    if found["effect"] in ("allow", "downgrade"):
        return None
    key = _DENIED[found["kind"]] if found["effect"] == "deny" else "consent_required"
    return Problem(key, found["reason"], rule=found["rule"])


def _show(console: Console, found: dict[str, Any]) -> None:
    console.print(f"{found['effect']}  {found['reason']}", markup=False)
    console.print(f"rule       {found['rule']} ({found['kind']})", markup=False)
    for name, value in sorted(found["evidence"].items()):
        shown = ", ".join(value) if isinstance(value, list) else value
        console.print(f"{name:<10} {shown}", markup=False)
