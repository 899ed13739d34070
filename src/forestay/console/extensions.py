"""Extensions: what each registered, what it may do, what it did, and a person's decisions about it."""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from forestay.console.parts import Parts, form_of, number_of, operator_of
from forestay.console.render import go
from forestay.extensions import EXPIRIES
from forestay.kernel import Problem

_CALLS = 50
# The engine and the compiler come with the views: they are imported when somebody looks.


async def listing(request: Request, parts: Parts) -> Response:
    from forestay.extensions import overview

    operator_of(request)
    return parts.templates.page(
        request,
        "extensions.html",
        view=await overview(parts.host.extensions),
        done=request.query_params.get("done", ""),
    )


async def load(request: Request, parts: Parts) -> Response:
    """Load what the folder brings and a person trusts, as the first agent run would."""
    operator_of(request, "runs:create")
    await parts.host.extensions.suite()
    return go("/extensions")


async def show(request: Request, parts: Parts) -> Response:
    from forestay.extensions import CAPABILITIES, portrait

    operator_of(request)
    start = number_of(request, "start")
    view = await portrait(parts.host.extensions, request.path_params["name"])
    calls = [call for call in view.seen.calls if _wanted(call.allowed, request.query_params.get("only", ""))]
    return parts.templates.page(
        request,
        "extension.html",
        view=view,
        calls=calls[start : start + _CALLS],
        start=start,
        total=len(calls),
        page_size=_CALLS,
        only=request.query_params.get("only", ""),
        capabilities=CAPABILITIES,
        done=request.query_params.get("done", ""),
    )


def _wanted(allowed: bool, only: str) -> bool:
    return only not in ("allowed", "refused") or allowed == (only == "allowed")


async def decide(request: Request, parts: Parts) -> Response:
    """Grant or deny a capability, in force for the next call."""
    from forestay.host import grant_of

    caller = operator_of(request, "grants:manage")
    form, name = form_of(request), request.path_params["name"]
    expiry = form.get("expiry", "")
    if expiry and expiry not in EXPIRIES:
        raise Problem("schema_mismatch", "The decision holds for an hour, a day, a week or until it is taken back.")
    until = parts.clock.now_ms() + EXPIRIES[expiry] * 1000 if expiry else None
    grant = grant_of(form.get("capability", ""), form.get("scope", ""), until)
    effect: Literal["allow", "deny"] = "deny" if form.get("effect") == "deny" else "allow"
    await parts.host.extensions.decide(name, effect, grant, by=caller.principal or caller.key_id)
    return _back(name, "granted" if effect == "allow" else "denied")


async def revoke(request: Request, parts: Parts) -> Response:
    caller = operator_of(request, "grants:manage")
    name = request.path_params["name"]
    capability = form_of(request).get("capability", "")
    await parts.host.extensions.take_back(name, capability, by=caller.principal or caller.key_id)
    return _back(name, "revoked")


def _back(name: str, done: str) -> Response:
    return go(f"/extensions/{quote(name, safe='')}?done={done}#decisions")
