"""One request to a page, and the decorators that declare pages and forms.

@page("/ledger", "ledger", operator=True)
async def show(visit: Visit) -> Response:
    "The ledger's streams, and whether it holds."
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from forestay.host import Host
from forestay.kernel import Problem
from forestay.surface import Call, Caller, Form, Operations

if TYPE_CHECKING:
    from forestay.console.pages import Console

_FORM_LIMIT = 64 * 1024
HTML = "text/html"
api = Operations["Console"](contract="console", media=HTML, tag="console")


class Visit:
    """A request of a signed-in visitor."""

    def __init__(self, console: Console, call: Call) -> None:
        self.console = console
        self.call = call
        self.path: Mapping[str, str] = call.path

    @property
    def host(self) -> Host:
        return self.console.host

    @property
    def caller(self) -> Caller:
        return self.call.caller

    @property
    def tenant(self) -> str:
        return self.call.tenant

    @property
    def form(self) -> Form:
        fields: Form = self.call.body
        return fields

    def asked(self, name: str) -> str:
        """Return a text of the query; empty when it is missing."""
        return self.call.request.query_params.get(name, "")

    def number(self, name: str) -> int:
        """Return a whole number of the query; 0 when it is missing."""
        return whole(self.asked(name) or "0", name)

    def page(self, template: str, /, **values: Any) -> Response:
        return self.console.templates.page(self.call.request, template, **values)


Page = Callable[[Visit], Awaitable[Response]]


def page(path: str, name: str, *scopes: str, operator: bool = False, streams: bool = False) -> Callable[[Page], Page]:
    """Declare the page that the decorated function shows; `operator` pages hold every tenant's records."""
    return _declare("GET", path, name, scopes, operator=operator, streams=streams)


def form(path: str, name: str, *scopes: str, operator: bool = False) -> Callable[[Page], Page]:
    """Declare the decorated function as the handler of a form sent to `path`."""
    return _declare("POST", path, name, scopes, operator=operator)


def _declare(
    method: Any, path: str, name: str, scopes: tuple[str, ...], *, operator: bool, streams: bool = False
) -> Callable[[Page], Page]:
    def declare(function: Page) -> Page:
        async def perform(console: Console, call: Call) -> Response:
            await console.welcome(call)
            return await function(Visit(console, call))

        perform.__doc__ = function.__doc__
        api.add(
            method,
            path,
            f"console.{name}",
            str,
            auth="session",
            scopes=("audit:read", *scopes) if operator else scopes,
            operator=operator,
            streams=streams,
            body=Form if method == "POST" else None,
            body_limit=_FORM_LIMIT,
        )(perform)
        return function

    return declare


def whole(text: str, name: str) -> int:
    """Read a whole number from 0 on, as a person or a link wrote it."""
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Problem("out_of_range", f"`{name}` is a whole number from 0 on.", at=name)
    return int(text)


def chosen_model(visit: Visit) -> str | None:
    """Return the model that a form chose among those of the page; None for the agent's own."""
    name, known = visit.form.get("model", "").strip(), visit.host.models.names
    if name and name not in known:
        raise Problem("model_unknown", f"There is no model {name[:80]} here.", at="model", known=known)
    return name or None
