"""Renders pages from templates, with the headers that keep them safe."""

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

# No content from other sites, nothing inline, no frames, no forms to other sites.
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

VISITOR, WAITING = "forestay.visitor", "forestay.waiting"  # keys of the request's scope that every page uses
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
    """The console's templates. They escape every value; one that uses a missing value fails."""

    @cached_property
    def _environment(self) -> jinja2.Environment:
        """Built for the first page, because most hosts never show one."""
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
    """Redirect the browser after a form, to a path of this site."""
    return RedirectResponse(path, 303, headers=SECURITY_HEADERS)


def segment(text: str) -> str:
    """Quote `text` as one segment of an address, slashes included."""
    return quote(text, safe="")


def pretty(value: Any) -> str:
    """Return a value as indented JSON; a long one is cut and says so."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text if len(text) <= 20_000 else text[:20_000] + f"\n… {len(text) - 20_000} more characters"


def state(status: str) -> str:
    """Return the CSS class of a status: good, bad, off, busy, or else wait."""
    return _STATES.get(status, "wait")


def short(name: str) -> str:
    """Shorten an id to its beginning and its end; templates put the whole id into the title."""
    return name if len(name) <= 22 else f"{name[:10]}…{name[-6:]}"


_TOLD = ("toolName", "nodeId", "n", "capability", "method", "subject", "name", "source_label", "folder")


def about(record: Record) -> str:
    """Return the subject of a record in a word or two: the effect, tool, node or capability."""
    payload = record.payload if isinstance(record.payload, dict) else {}
    known = {**record.attrs, **payload}
    names = ("key",) if record.type == "forestay.effect.recorded" else _TOLD
    return next((known[name][:120] for name in names if isinstance(known.get(name), str) and known[name]), "")


def ruled(record: Record) -> dict[str, str] | None:
    """Return a policy decision's effect, subject, target and reason; None for other records."""
    payload = record.payload if isinstance(record.payload, dict) else {}
    found = {**payload, **(payload["data"] if isinstance(payload.get("data"), dict) else {})}
    if not record.type.endswith("policy.decision") or not isinstance(found.get("effect"), str):
        return None
    subject = next((found[name] for name in ("subject", "agentId", "extension", "key") if found.get(name)), "")
    target = next((found[name] for name in ("tool", "resource", "capability") if found.get(name)), "")
    said = {"effect": found["effect"], "subject": subject, "target": target, "reason": found.get("reason", "")}
    return {name: str(value)[:300] for name, value in said.items()}


def count(number: int | None) -> str:
    """Return a number with separators; a dash when it is unknown."""
    return "–" if number is None else f"{number:,}"


def lasted(milliseconds: float | None) -> str:
    """Return a duration in a suitable unit."""
    if milliseconds is None:
        return "–"
    if 0 < milliseconds < 1:
        return f"{milliseconds * 1000:.0f} µs"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def dollars(value: float) -> str:
    """Return an amount of USD: small amounts have more digits."""
    return "$0" if not value else f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def attempt_took(attempt: Any) -> int:
    """Return the duration of a finished attempt in milliseconds."""
    return parse_iso(attempt.ended_at) - parse_iso(attempt.started_at)


def clock_time(value: int | str) -> str:
    """Return the time of day, to the millisecond."""
    return iso(value if isinstance(value, int) else parse_iso(value))[11:23]


def day_time(value: int | str) -> str:
    """Return the date and time in UTC, to the second."""
    return iso(value if isinstance(value, int) else parse_iso(value))[:19].replace("T", " ")


def _source(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")
