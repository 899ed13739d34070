"""Pages from templates, and the headers that keep them harmless."""

from __future__ import annotations

from functools import cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from forestay.console.prose import prose
from forestay.kernel import Record, iso, parse_iso

if TYPE_CHECKING:
    import jinja2

# Nothing from elsewhere, nothing inline, no frame, no form to another place.
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}

VISITOR, WAITING = "forestay.visitor", "forestay.waiting"  # what a request is known to have, for every page
_LOOKS = {
    "good": "completed, open, loaded, trusted, approved, compatible, accepted, allow, run, ok, accept, "
    "edit-accept, active, delivered",
    "bad": "failed, stopped, changed, blocked, refused, deny, refuse, reject, error, forbidden, denied, timeout, io, "
    "invalid_request, internal, dead, dead-lettered, rolled-back",
    "off": "cancelled, cancelling, closed, expired, not loaded, gone, nothing, draft, deprecated, not deployed",
    "busy": "running, pending, under way, due",
}
_STATES = {status: look for look, statuses in _LOOKS.items() for status in statuses.split(", ")}


class Templates:
    """The console's templates. Everything is escaped; a template that asks for a missing value fails."""

    @cached_property
    def _environment(self) -> jinja2.Environment:
        """Made for the first page: most hosts are never looked at."""
        import jinja2

        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(_source),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters.update(
            pretty=pretty,
            prose=prose,
            state=state,
            clock=clock_time,
            day=day_time,
            short=short,
            count=count,
            lasted=lasted,
            about=about,
            ruled=ruled,
            dollars=dollars,
            attempt_took=attempt_took,
            urlencode=segment,
        )
        return environment

    def text(self, template: str, /, **values: Any) -> str:
        return self._environment.get_template(template).render(**values)

    def page(self, request: Request, template: str, /, http: int = 200, **values: Any) -> Response:
        visitor = request.scope.get(VISITOR)
        waiting = request.scope.get(WAITING, 0)
        body = self.text(template, visitor=visitor, path=request.url.path, open_count=waiting, **values)
        return HTMLResponse(body, http, headers=SECURITY_HEADERS)


def go(path: str) -> Response:
    """Where the browser goes after a form: a path of ours, so never another site."""
    return RedirectResponse(path, 303, headers=SECURITY_HEADERS)


def segment(text: str) -> str:
    """`text` as one part of an address, slashes and all."""
    return quote(text, safe="")


def pretty(value: Any) -> str:
    """A value as indented JSON; long ones are cut, and say so."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text if len(text) <= 20_000 else text[:20_000] + f"\n… {len(text) - 20_000} more characters"


def state(status: str) -> str:
    """The look of a status: good, bad, off, busy, or else wait."""
    return _STATES.get(status, "wait")


def short(name: str) -> str:
    """An id that a person can tell from others: its beginning and its end; the whole one stands in the title."""
    return name if len(name) <= 22 else f"{name[:10]}…{name[-6:]}"


_TOLD = ("toolName", "nodeId", "n", "capability", "method", "subject", "name", "source_label", "folder")


def about(record: Record) -> str:
    """What a record is about, in a word or two: the effect, the tool, the node, the capability."""
    payload = record.payload if isinstance(record.payload, dict) else {}
    known = {**record.attrs, **payload}
    names = ("key",) if record.type == "forestay.effect.recorded" else _TOLD
    return next((known[name][:120] for name in names if isinstance(known.get(name), str) and known[name]), "")


def ruled(record: Record) -> dict[str, str] | None:
    """What was decided about whom, and why; None for a record of another kind."""
    payload = record.payload if isinstance(record.payload, dict) else {}
    found = {**payload, **(payload["data"] if isinstance(payload.get("data"), dict) else {})}
    if not record.type.endswith("policy.decision") or not isinstance(found.get("effect"), str):
        return None
    subject = next((found[name] for name in ("subject", "agentId", "extension", "key") if found.get(name)), "")
    target = next((found[name] for name in ("tool", "resource", "capability") if found.get(name)), "")
    said = {"effect": found["effect"], "subject": subject, "target": target, "reason": found.get("reason", "")}
    return {name: str(value)[:300] for name, value in said.items()}


def count(number: int | None) -> str:
    """A number with separators; a dash for one that nobody knows."""
    return "–" if number is None else f"{number:,}"


def lasted(milliseconds: float | None) -> str:
    """A duration in the unit that suits it."""
    if milliseconds is None:
        return "–"
    if 0 < milliseconds < 1:
        return f"{milliseconds * 1000:.0f} µs"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def dollars(value: float) -> str:
    """An amount of USD with as many digits as it needs."""
    return "$0" if not value else f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def attempt_took(attempt: Any) -> int:
    """How long an attempt that has ended took, in milliseconds."""
    return parse_iso(attempt.ended_at) - parse_iso(attempt.started_at)


def clock_time(value: int | str) -> str:
    """The time of day, to the millisecond."""
    return iso(value if isinstance(value, int) else parse_iso(value))[11:23]


def day_time(value: int | str) -> str:
    """Date and time, to the second, in UTC."""
    return iso(value if isinstance(value, int) else parse_iso(value))[:19].replace("T", " ")


def _source(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")
