"""`/forms/{subscriptionId}`: the page of a form subscription, for people who have no key (OpenWOP RFC 0083).

- Y3  Every foreign text is escaped; the page runs no script and is shown in no frame.
- Y4  A form takes a limited rate of events, from all senders together.
- Y5  An address without a form tells nothing about what else exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from starlette.responses import HTMLResponse, Response

from forestay.governance import FormField, Subscription, form_fields, form_inputs, form_page, form_token
from forestay.host import Host
from forestay.kernel import Clock, HttpRates, Problem, Rate, SystemRandomness
from forestay.surface.limits import RateLimits
from forestay.surface.operations import Call, Operations
from forestay.surface.reading import Form

PATH = "/forms/{subscriptionId}"
RATE = Rate(1, 30)
_LIMIT = 256 * 1024
_STYLE = (
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:2rem auto;padding:0 1rem}"
    "label{display:block;margin:1rem 0 .25rem}"
    "input:not([type=checkbox]),textarea{width:100%;font:inherit;padding:.4rem}"
    "button{margin-top:1.5rem;font:inherit;padding:.4rem 1.2rem}.fault{color:#a40000}"
)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_HTML = "text/html"
_PAGE = "forestay.page"  # the field of the token; no variable has a dot in its name


class Forms:
    """The forms of one host."""

    def __init__(self, host: Host, clock: Clock | None = None) -> None:
        self._host = host
        self._key = host.key_for("forms")
        self._limits = RateLimits(HttpRates(tenant=None, key=RATE), clock or host.clock)

    async def show(self, subscription_id: str) -> Response:
        found = await self._found(subscription_id)
        title, fields = await self._fields(found)
        return self._page(found, title, fields, {}, "", 200)

    async def take(self, subscription_id: str, given: Mapping[str, str]) -> Response:
        found = await self._found(subscription_id)
        title, fields = await self._fields(found)
        try:
            self._limits.admit(key=subscription_id, tenant="", route="")  # Y4
            event = form_page(self._key, subscription_id, given.get(_PAGE, ""), self._host.clock.now_ms())
            inputs = form_inputs(fields, given)
            taken = await self._host.triggers.offer(found.tenant, subscription_id, event, inputs)
        except Problem as problem:
            return self._page(found, title, fields, given, problem.message, problem.row.http)
        said = f"<h1>{escape(title)}</h1><p>It has arrived. Its number is <code>{escape(taken.delivery_id)}</code>.</p>"
        return _document(title, said, 202)

    async def _found(self, subscription_id: str) -> Subscription:
        found = await self._host.triggers.subscriptions.find(subscription_id)
        if found is None or found.source != "form" or found.state != "active":
            raise Problem("not_found", "There is no such form.")  # Y5
        return found

    async def _fields(self, found: Subscription) -> tuple[str, list[FormField]]:
        document = await self._host.runs.get_workflow(found.workflow_id, found.tenant)
        return str(document["name"]), form_fields(document)

    def _page(
        self,
        found: Subscription,
        title: str,
        fields: list[FormField],
        given: Mapping[str, str],
        fault: str,
        status: int,
    ) -> Response:
        now, chance = self._host.clock.now_ms(), SystemRandomness().bytes(16)
        token = form_token(self._key, found.subscription_id, now, chance)
        told = f'<p class="fault" role="alert">{escape(fault)}</p>' if fault else ""
        inputs = "".join(_input(field, given) for field in fields)
        body = (
            f"<h1>{escape(title)}</h1>{told}"
            f'<form method="post" action="/forms/{escape(found.subscription_id)}" accept-charset="utf-8">'
            f'<input type="hidden" name="{_PAGE}" value="{escape(token)}">{inputs}<button>Send</button></form>'
        )
        return _document(title, body, status)


def _input(field: FormField, given: Mapping[str, str]) -> str:
    name, label = escape(field.name), escape(field.label)
    value = escape(given.get(field.name, field.default)) if field.kind != "password" else ""
    needed = " required" if field.required else ""
    if field.kind == "checkbox":
        ticked = " checked" if given.get(field.name, field.default) in ("on", "True") else ""
        return f'<label><input type="checkbox" name="{name}"{ticked}> {label}</label>'
    if field.kind == "text":
        area = f'<textarea id="{name}" name="{name}" rows="2"{needed}>{value}</textarea>'
        return f'<label for="{name}">{label}</label>{area}'
    step = ' step="any"' if field.kind == "number" else ""
    kind = f'type="{field.kind}"{step} autocomplete="off"'
    return f'<label for="{name}">{label}</label><input id="{name}" name="{name}" {kind} value="{value}"{needed}>'


def _document(title: str, body: str, status: int) -> Response:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    text = f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{body}</body></html>'
    return HTMLResponse(text, status, headers=_HEADERS)


api = Operations[Forms](auth="token", contract="lafs", tag="triggers", media=_HTML, problems=("not_found",))


@api.get(PATH, "triggers.form", str)
async def show(forms: Forms, call: Call) -> Response:
    """The page of a form subscription: a field for each variable of its workflow."""
    return await forms.show(call.path["subscriptionId"])


@api.post(PATH, "triggers.submit", {202: str}, body=Form, body_limit=_LIMIT)
async def submit(forms: Forms, call: Call) -> Response:
    """Take a form that was filled in; it is on disk when the answer is sent."""
    return await forms.take(call.path["subscriptionId"], call.body)
