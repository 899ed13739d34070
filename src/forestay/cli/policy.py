"""Explains what the host would decide, and by which rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected
from forestay.cli.output import Answer
from forestay.kernel import Problem

app = Group("policy")
_DENIED = {
    "extension": "capability_denied",
    "tool": "capability_denied",
    "api": "permission_denied",
    "relay": "role_denied",
    "egress": "address_blocked",
}


@app.command("explain", using=connected)
async def explain(
    host: Connection,
    subject: Annotated[str, typer.Option(help="An extension, an agent, a key's id, a relay role or session, or host.")],
    capability: Annotated[str, typer.Option(help="A capability, tool, relay.OPERATION, egress, or an API scope.")],
    on: Annotated[str | None, typer.Option(help="A path, host, variable, tool, address or tenant.")] = None,
    method: Annotated[str, typer.Option(help="The host call's method, where a grant is limited to some.")] = "",
) -> Answer:
    """Say whether a subject may do something, by the rules in force; a refusal exits as the refusal itself would."""
    found = await host.get(
        "/host/v1/policy/decision", subject=subject, capability=capability, on=on, method=method or None
    )
    return Answer(found, human=_lines(found), problem=_problem(found))


def _problem(found: dict[str, Any]) -> Problem | None:
    """Return the problem that a refused caller would get; None when the caller is allowed."""
    if found["effect"] in ("allow", "downgrade"):
        return None
    key = _DENIED[found["kind"]] if found["effect"] == "deny" else "consent_required"
    return Problem(key, found["reason"], rule=found["rule"])


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['effect']}  {found['reason']}"
    yield f"rule       {found['rule']} ({found['kind']})"
    for name, value in sorted(found["evidence"].items()):
        yield f"{name:<10} {', '.join(value) if isinstance(value, list) else value}"
