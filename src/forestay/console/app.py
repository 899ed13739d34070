"""The console's routes: who may enter, which page answers, what a failure looks like."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from importlib import resources
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from forestay import __version__
from forestay.console import api, extensions, inbox, ledger, overview, relay, runs, trust
from forestay.console.parts import Parts
from forestay.console.render import SECURITY_HEADERS, Templates, go
from forestay.console.session import COOKIE, LIFETIME_MS, Session, Sessions
from forestay.host import Host
from forestay.kernel import Problem
from forestay.relay import SessionHistories
from forestay.surface import Services, as_problem, hostapi, note_caller, note_route, request_id

Page = Callable[[Request, Parts], Awaitable[Response]]
_LOG = logging.getLogger("forestay.console")
_FORM_LIMIT = 64 * 1024
_STATIC = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}

PAGES: tuple[tuple[str, str, Page], ...] = (
    ("GET", "/", overview.show),
    ("GET", "/runs", runs.listing),
    ("POST", "/runs", runs.start),
    ("GET", "/runs/{run_id}", runs.show),
    ("GET", "/runs/{run_id}/live", runs.live),
    ("GET", "/runs/{run_id}/turns/{work}/{turn}", runs.turn),
    ("POST", "/runs/{run_id}/cancel", runs.cancel),
    ("POST", "/runs/{run_id}/fork", runs.fork),
    ("GET", "/inbox", inbox.show),
    ("POST", "/inbox/{run_id}/{node_id}", inbox.answer),
    ("GET", "/extensions", extensions.listing),
    ("POST", "/extensions", extensions.load),
    ("GET", "/extensions/{name:path}", extensions.show),
    ("POST", "/extensions/{name:path}/decide", extensions.decide),
    ("POST", "/extensions/{name:path}/revoke", extensions.revoke),
    ("GET", "/trust", trust.show),
    ("POST", "/trust", trust.give),
    ("GET", "/relay", relay.listing),
    ("GET", "/relay/{session}", relay.show),
    ("GET", "/relay/{session}/preview", relay.preview),
    ("GET", "/relay/{session}/facts/{number}", relay.fact),
    ("GET", "/relay/{session}/windows/{window}", relay.window),
    ("GET", "/ledger", ledger.show),
    ("POST", "/ledger/verify", ledger.verify),
    ("GET", "/ledger/{stream:path}", ledger.stream),
    ("GET", "/api", api.show),
)


# "/" stands for itself alone: everything else at the root belongs to the contracts.
_OWN = ("runs", "inbox", "extensions", "trust", "relay", "ledger", "api", "login", "logout", "static")
PREFIXES = ("/", *(f"/{name}" for name in _OWN))
_PLACES = frozenset(_OWN) - {"login", "logout", "static"}
_PLAIN = re.compile(r"/(?!/)[!-\[\]-~]{0,2047}")  # visible ASCII without a backslash, which some take for a slash


def mounts(host: Host, services: Services) -> dict[str, ASGIApp]:
    """The console, under every path that is its own."""
    parts = Parts(
        host=host,
        keys=services.keys,
        templates=Templates(),
        looks=SessionHistories(host.relay),
        facts=_facts(host),
        operations=tuple(hostapi.operations(host, services)),
    )
    app = console(parts, host.key_for("console"))

    async def whole_path(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": ""}, receive, send)

    return dict.fromkeys(PREFIXES, whole_path)


def _facts(host: Host) -> dict[str, str]:
    return {"version": f"forestay {__version__}", "model": host.models.default.name}


def console(parts: Parts, secret: bytes) -> ASGIApp:
    """The console over a host's parts; `secret` signs its cookies."""
    sessions = Sessions(parts.keys, secret, parts.clock)
    secure = parts.host.config.http.public_url.lower().startswith("https://")
    templates = parts.templates
    routes = [
        Route("/login", _login_page(templates), methods=["GET"]),
        Route("/login", _login(templates, sessions, secure), methods=["POST"]),
        Route("/logout", _logout(sessions, secure), methods=["POST"]),
        Route("/static/{name}", _static, methods=["GET"]),
        *(Route(path, _guarded(page, parts, sessions), methods=[method]) for method, path, page in PAGES),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _lost(templates)})


def _guarded(page: Page, parts: Parts, sessions: Sessions) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        note_route(request.scope, f"console.{page.__module__.rpartition('.')[2]}.{page.__qualname__}")
        session = sessions.read(request.cookies)
        if session is None:
            return go(_door(request))
        request.scope["forestay.session"] = session
        note_caller(request.scope, session.caller)
        try:
            request.scope["forestay.waiting"] = await inbox.waiting(parts, session.caller)
            if request.method == "POST":
                await check_form(request, session)
            return await page(request, parts)
        except Problem as problem:
            return _failure(request, parts.templates, problem)
        except HTTPException:
            raise  # a form that cannot be read; `_lost` says so
        except Exception as error:  # noqa: BLE001 - the outermost boundary of a page
            _LOG.exception("a page failed: %s", request.url.path)
            return _failure(request, parts.templates, Problem.unexpected(error))

    return endpoint


def _door(request: Request) -> str:
    """Where somebody signs in, with the way back to the page that a browser asked for."""
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return "/login"
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/login" if asked == "/" else f"/login?next={quote(asked, safe='/')}"


def own_path(text: str) -> str:
    """`text` when it is the address of a page of ours, else the first page: nobody is sent to another site."""
    path = text.partition("?")[0]
    first = path.split("/")[1] if path.startswith("/") else None
    known = (first == "" and path == "/") or first in _PLACES
    return text if known and _PLAIN.fullmatch(text) else "/"


async def check_form(request: Request, session: Session) -> None:
    """Read the form within its limit and compare its token (C3)."""
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > _FORM_LIMIT:
        raise Problem("payload_too_large", "The form is too large.", limit=_FORM_LIMIT)
    form = await request.form(max_files=0, max_fields=50)
    request.scope["forestay.form"] = {key: value for key, value in form.items() if isinstance(value, str)}
    session.check(request.scope["forestay.form"].get("csrf"))


def _failure(request: Request, templates: Templates, problem: Problem) -> Response:
    return templates.page(request, "problem.html", problem.row.http, error=problem.as_lafs(), row=problem.row)


def _lost(templates: Templates) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Starlette's own refusals (no such page, another method, a form that cannot be read), as a page."""

    async def endpoint(request: Request, error: Exception) -> Response:
        return _failure(request, templates, as_problem(error, request_id(request)))

    return endpoint


def _login_page(templates: Templates) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return templates.page(request, "login.html", message=None, next=own_path(request.query_params.get("next", "")))

    return endpoint


def is_from_elsewhere(request: Request) -> bool:
    """Whether a browser says that another site (or another port) sent the form: it could sign somebody in as itself."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin not in (None, "null") and origin.rpartition("://")[2] != request.headers.get("host")


def _login(templates: Templates, sessions: Sessions, secure: bool) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        form = await request.form(max_files=0, max_fields=5)
        key, wanted = form.get("key"), form.get("next")
        after = own_path(wanted if isinstance(wanted, str) else "")
        try:
            if is_from_elsewhere(request):
                raise Problem("permission_denied", "The form is from another site.", fix="Sign in on this page.")
            cookie = sessions.sign_in(key if isinstance(key, str) else "")
        except Problem as problem:
            return templates.page(request, "login.html", problem.row.http, message=problem.message, next=after)
        response = go(after)
        response.set_cookie(
            COOKIE, cookie, max_age=LIFETIME_MS // 1000, httponly=True, samesite="strict", secure=secure, path="/"
        )
        return response

    return endpoint


def _logout(sessions: Sessions, secure: bool) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        session = sessions.read(request.cookies)
        if session is not None:
            form = await request.form(max_files=0, max_fields=5)
            token = form.get("csrf")
            try:
                session.check(token if isinstance(token, str) else None)
            except Problem:
                return go("/")
        response = go("/login")
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=secure)
        return response

    return endpoint


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        return Response(status_code=404, headers=SECURITY_HEADERS)
    data = resources.files(__package__).joinpath("static", name).read_bytes()
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'  # asked for at every load, sent when it changed
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-cache", "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=_STATIC[name], headers=headers)
