"""Credentials: the list, and the hosts that each may go to. No page shows a value."""

from __future__ import annotations

from starlette.responses import Response

from forestay.console.render import go
from forestay.console.visit import Visit, form, page
from forestay.kernel import iso


@page("/credentials", "credentials", "grants:manage")
async def listing(visit: Visit) -> Response:
    """The tenant's credentials, by id."""
    found = await visit.host.credentials.listed(visit.tenant)
    now = visit.host.clock.now_ms()
    ends = {item.credential_id: iso(item.expires_ms) for item in found if item.expires_ms is not None}
    over = {item.credential_id for item in found if item.expires_ms is not None and item.expires_ms <= now}
    return visit.page("credentials.html", credentials=found, ends=ends, over=over)


@form("/credentials/{credentialId}/revoke", "credentials.revoke", "grants:manage")
async def revoke(visit: Visit) -> Response:
    """Take a credential back for good."""
    await visit.host.credentials.revoke(visit.tenant, visit.path["credentialId"], by=visit.caller.principal)
    return go("/credentials")
