"""API keys: list, create and revoke them; a new key is shown once."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from forestay.console.faults import Refused, refused
from forestay.console.render import go
from forestay.console.visit import Visit, form, page
from forestay.kernel import Problem, canonical, iso
from forestay.surface import NewKey, keys_within_reach, make_key

_DAY = 24 * 60 * 60 * 1000
_LASTS = {"": None, "day": _DAY, "week": 7 * _DAY, "month": 30 * _DAY, "year": 365 * _DAY}
_FIELDS = ("name", "principal", "lasts", "scopes")


@page("/keys", "keys", "keys:manage")
async def listing(visit: Visit) -> Response:
    """The keys that the visitor may manage, and a form for another one."""
    return _listing(visit, Refused())


@form("/keys", "keys.create", "keys:manage")
async def create(visit: Visit) -> Response:
    """Make a key with some of the visitor's scopes; its text is shown on the page that answers, once."""
    try:
        _, text = await make_key(visit.console.services, visit.caller, _wanted(visit))
    except Problem as problem:
        return _listing(visit, refused(problem, visit.form, _FIELDS), http=problem.row.http)
    return _listing(visit, Refused(), text)


@form("/keys/{keyId}/revoke", "keys.revoke", "keys:manage")
async def revoke(visit: Visit) -> Response:
    """Refuse a key from now on."""
    reach = keys_within_reach(visit.caller)
    await visit.console.services.keys.revoke(visit.path["keyId"], reach, "revoked at the console")
    return go("/keys")


def _wanted(visit: Visit) -> NewKey:
    fields = visit.form
    lasts = fields.get("lasts", "")
    if lasts not in _LASTS:
        raise Problem(
            "schema_mismatch", "A key lasts a day, a week, a month, a year or until it is revoked.", at="lasts"
        )
    lives = _LASTS[lasts]
    given = {
        "name": fields.get("name", "").strip(),
        "principal": fields.get("principal", "").strip() or None,
        "scopes": [scope for scope in sorted(visit.caller.scopes) if fields.get(f"scope-{scope}") == "yes"],
        "expiresAt": None if lives is None else iso(visit.host.clock.now_ms() + lives),
    }
    if not given["scopes"]:
        raise Problem("schema_mismatch", "Choose at least one scope.", at="scopes")
    try:
        return msgspec.convert(given, NewKey)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "$")
        raise Problem("schema_mismatch", f"{message}.", at=where) from error


def _listing(visit: Visit, said: Refused, made: str = "", http: int = 200) -> Response:
    return visit.page(
        "keys.html",
        http=http,
        keys=visit.console.services.keys.list(keys_within_reach(visit.caller)),
        scopes=sorted(visit.caller.scopes - {"approvals:delegate"}),
        now=visit.host.clock.now_ms(),
        refused=said,
        made=made,
    )
