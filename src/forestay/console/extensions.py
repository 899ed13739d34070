"""Extensions: their registrations, permissions and calls, and a person's decisions about them.

The folder's extensions run only when a person trusts exactly their content.
"""

from __future__ import annotations

from typing import Literal

from starlette.responses import Response

from forestay.console.render import go, segment
from forestay.console.visit import Visit, form, page
from forestay.extensions import EXPIRIES
from forestay.kernel import Problem

_CALLS = 50
# The views import the engine and the compiler, so a page imports them when it is requested.


@page("/extensions", "extensions", operator=True)
async def listing(visit: Visit) -> Response:
    """The project's extensions."""
    from forestay.extensions import overview

    extensions = visit.host.extensions
    view, servers = await overview(extensions), extensions.servers.named().found
    return visit.page("extensions.html", view=view, servers=servers, done=visit.asked("done"))


@form("/extensions", "extensions.load", "runs:create", operator=True)
async def load(visit: Visit) -> Response:
    """Load what the folder brings and a person trusts, as the first agent run would."""
    await visit.host.extensions.suite()
    return go("/extensions")


@page("/servers", "servers", operator=True)
async def servers(visit: Visit) -> Response:
    """The MCP servers of the project: where each stands, its pinned tools and their calls, and what changed."""
    return visit.page("servers.html", servers=await visit.host.extensions.servers.cards(), done=visit.asked("done"))


@form("/servers/{name}/approve", "servers.approve", "grants:manage", operator=True)
async def approve_server(visit: Visit) -> Response:
    """Let a server be started as it was shown, by its fingerprint."""
    name = visit.path["name"]
    await visit.host.extensions.servers.approve(name, visit.form.get("fingerprint", ""), by=visit.caller.name)
    return go("/servers?done=approved")


@form("/servers/{name}/look", "servers.look", "grants:manage", operator=True)
async def look_at_server(visit: Visit) -> Response:
    """Start an approved server and compare what it offers with its pins."""
    await visit.host.extensions.servers.look(visit.path["name"])
    return go("/servers?done=looked")


@form("/servers/{name}/pin", "servers.pin", "grants:manage", operator=True)
async def pin_server(visit: Visit) -> Response:
    """Pin what a server offers, as it was shown, by its hash."""
    name = visit.path["name"]
    await visit.host.extensions.servers.pin(name, visit.form.get("offer", ""), by=visit.caller.name)
    return go("/servers?done=pinned")


@form("/servers/{name}/withdraw", "servers.withdraw", "grants:manage", operator=True)
async def withdraw_server(visit: Visit) -> Response:
    """Take back the approval of a server, and its pins."""
    await visit.host.extensions.servers.withdraw(visit.path["name"], by=visit.caller.name)
    return go("/servers?done=withdrawn")


@page("/extensions/{name}", "extensions.show", operator=True)
async def show(visit: Visit) -> Response:
    """One extension: what it registered, may do and did."""
    from forestay.extensions import CAPABILITIES, portrait

    start, only = visit.number("start"), visit.asked("only")
    view = await portrait(visit.host.extensions, visit.path["name"])
    calls = [call for call in view.seen.calls if _wanted(call.allowed, only)]
    return visit.page(
        "extension.html",
        view=view,
        calls=calls[start : start + _CALLS],
        start=start,
        total=len(calls),
        page_size=_CALLS,
        only=only,
        capabilities=CAPABILITIES,
        done=visit.asked("done"),
    )


def _wanted(allowed: bool, only: str) -> bool:
    return only not in ("allowed", "refused") or allowed == (only == "allowed")


@form("/extensions/{name}/decide", "extensions.decide", "grants:manage", operator=True)
async def decide(visit: Visit) -> Response:
    """Grant or deny a capability, in force for the next call."""
    from forestay.host import grant_of

    fields, name = visit.form, visit.path["name"]
    expiry = fields.get("expiry", "")
    if expiry and expiry not in EXPIRIES:
        raise Problem("schema_mismatch", "The decision holds for an hour, a day, a week or until it is taken back.")
    until = visit.host.clock.now_ms() + EXPIRIES[expiry] * 1000 if expiry else None
    grant = grant_of(fields.get("capability", ""), fields.get("scope", ""), until)
    effect: Literal["allow", "deny"] = "deny" if fields.get("effect") == "deny" else "allow"
    await visit.host.extensions.decide(name, effect, grant, by=visit.caller.name)
    return _back(name, "granted" if effect == "allow" else "denied")


@form("/extensions/{name}/revoke", "extensions.revoke", "grants:manage", operator=True)
async def revoke(visit: Visit) -> Response:
    """Take back what was decided about a capability."""
    name = visit.path["name"]
    await visit.host.extensions.take_back(name, visit.form.get("capability", ""), by=visit.caller.name)
    return _back(name, "revoked")


def _back(name: str, done: str) -> Response:
    return go(f"/extensions/{segment(name)}?done={done}#decisions")


@page("/trust", "trust", operator=True)
async def trust(visit: Visit) -> Response:
    """What the project folder brings, and its content hash."""
    from forestay.extensions import brought

    return visit.page("trust.html", view=await brought(visit.host.extensions))


@form("/trust", "trust.give", "grants:manage", operator=True)
async def give_trust(visit: Visit) -> Response:
    """Trust the content with this hash; when the folder has changed since, nothing is trusted."""
    digest = visit.form.get("digest", "")
    if not digest:
        raise Problem("schema_mismatch", "The hash of what is trusted is missing.", at="digest")
    await visit.host.extensions.give_trust(digest, by=visit.caller.name)
    return go("/extensions?done=trusted")
