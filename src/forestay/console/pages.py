"""The console: sign-in, the page of a problem, static files, and the list of all pages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from forestay import __version__
from forestay.console import (
    agents,
    budgets,
    charts,
    conversations,
    credentials,
    evaluations,
    extensions,
    fleet,
    inbox,
    keys,
    ledger,
    memory,
    overview,
    prompts,
    relay,
    run_list,
    runs,
    schedules,
    triggers,
    webhooks,
    workflows,
)
from forestay.console.render import SECURITY_HEADERS, VISITOR, WAITING, Templates, go
from forestay.console.sign_in import COOKIE, LIFETIME_MS, Door, Visitor
from forestay.console.visit import HTML, api
from forestay.extensions import SIGNED_IN
from forestay.kernel import Problem
from forestay.relay import SessionHistories
from forestay.surface import Call, Caller, Form, Operation, Services, TrustedProxies

__all__ = [
    "PAGES",
    "Console",
    "agents",
    "budgets",
    "charts",
    "conversations",
    "credentials",
    "evaluations",
    "extensions",
    "fleet",
    "inbox",
    "keys",
    "ledger",
    "memory",
    "overview",
    "prompts",
    "relay",
    "run_list",
    "runs",
    "schedules",
    "triggers",
    "webhooks",
    "workflows",
]

_FORM_LIMIT = 64 * 1024
_STATIC = {
    "style.css": "text/css",
    "talk.css": "text/css",
    "live.js": "text/javascript",
    "look.js": "text/javascript",
    "talk.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_PLAIN = re.compile(r"/(?!/)[!-\[\]-~]{0,2047}")  # visible ASCII without a backslash, which some read as a slash

# Every page and form that needs a sign-in: method, path, name.
PAGES = tuple((item.method, item.path, item.name) for item in api.declared)
_PLACES = {path.split("/")[1] for _, path, _ in PAGES} - {""}


class Console:
    """The pages of one host, for the surface to serve."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.host = services.host
        self.templates = Templates()
        self.looks = SessionHistories(self.host.relay)  # relay sessions as last viewed
        self.facts = {"version": f"forestay {__version__}", "model": self.host.models.default.name}
        self._door = Door(services.keys, self.host.key_for("console"), self.host.clock)
        http = self.host.config.http
        self._public_tls = http.public_url.lower().startswith("https://")
        self._proxies = TrustedProxies(http.trusted_proxies)

    @property
    def operations(self) -> Sequence[Operation]:
        return api.of(self)

    def caller(self, request: Request) -> Caller:
        """Return the caller that the request's cookie names."""
        visitor = request.scope[VISITOR] = self._door.read(request.cookies)
        if visitor is None:
            raise Problem("unauthenticated", "Nobody is signed in.", fix="Sign in with an API key.")
        return visitor.caller

    async def welcome(self, call: Call) -> None:
        """Check the token of a form (C3), and count the questions that wait for the visitor."""
        visitor: Visitor = call.request.scope[VISITOR]
        call.request.scope[WAITING] = await inbox.waiting(self.host, visitor.caller)
        if call.operation.mutates:
            visitor.check(call.body.get("csrf"))

    def problem_page(self, request: Request, problem: Problem) -> Response:
        """Show a problem as a page; send a visitor who is not signed in to the login page."""
        if problem.key == "unauthenticated":
            return go(_way_in(request))
        return self.templates.page(request, "problem.html", problem.row.http, error=problem.as_lafs(), row=problem.row)

    @api.get("/login", "console.login-page", str, auth="none")
    async def login_page(self, call: Call) -> Response:
        """Where an API key is shown."""
        after = own_path(call.request.query_params.get("next", ""))
        return self.templates.page(call.request, "login.html", message=None, next=after)

    @api.post("/login", "console.login", {303: None}, auth="none", body=Form, body_limit=_FORM_LIMIT)
    async def login(self, call: Call) -> Response:
        """Sign in."""
        after = own_path(call.body.get("next", ""))
        try:
            if is_from_elsewhere(call.request):
                raise Problem("permission_denied", "The form is from another site.", fix="Sign in on this page.")
            cookie = self._door.sign_in(call.body.get("key", ""))
        except Problem as problem:
            return self.templates.page(
                call.request, "login.html", problem.row.http, message=problem.message, next=after
            )
        response = go(after)
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=LIFETIME_MS // 1000,
            httponly=True,
            samesite="strict",
            secure=self._secure(call.request),
            path="/",
        )
        return response

    @api.get(SIGNED_IN, "console.signed-in", str, auth="none")
    async def signed_in(self, call: Call) -> Response:
        """Where an authorization server sends a browser back to. The cookie does not come along from another site."""
        return self.templates.page(call.request, "signed_in.html", asked=None, query=call.request.url.query)

    @api.post("/logout", "console.logout", {303: None}, auth="none", body=Form, body_limit=_FORM_LIMIT)
    async def logout(self, call: Call) -> Response:
        """Sign out."""
        visitor = self._door.read(call.request.cookies)
        try:
            if visitor is not None:
                visitor.check(call.body.get("csrf"))
        except Problem:
            return go("/")
        response = go("/login")
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=self._secure(call.request))
        return response

    def _secure(self, request: Request) -> bool:
        """Whether the visitor's browser speaks TLS (C4)."""
        return self._public_tls or self._proxies.over_tls(request)

    @api.get("/static/{name}", "console.static", {200: str, 304: None}, auth="none")
    async def static(self, call: Call) -> Response:
        """The style, the script and the icon of the pages."""
        name = call.path["name"]
        if name not in _STATIC:
            return Response(status_code=404, headers=SECURITY_HEADERS)
        data = resources.files(__package__).joinpath("static", name).read_bytes()
        tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'  # each load asks; a changed file is sent
        headers = {**SECURITY_HEADERS, "Cache-Control": "no-cache", "ETag": tag}
        if call.request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=_STATIC[name], headers=headers)


def _way_in(request: Request) -> str:
    """Return the address of the login page, with the page that a browser asked for as `next`."""
    if request.method != "GET" or HTML not in request.headers.get("accept", ""):
        return "/login"
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/login" if asked == "/" else f"/login?next={quote(asked, safe='/')}"


def own_path(text: str) -> str:
    """Return `text` if it is the address of a page here, else the first page: no visitor is sent to another site."""
    path = text.partition("?")[0]
    first = path.split("/")[1] if path.startswith("/") else None
    known = (first == "" and path == "/") or first in _PLACES
    return text if known and _PLAIN.fullmatch(text) else "/"


def is_from_elsewhere(request: Request) -> bool:
    """Whether the browser says that another site (or port) sent the form: it could sign a visitor in as itself."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin not in (None, "null") and origin.rpartition("://")[2] != request.headers.get("host")
