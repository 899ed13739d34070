"""A host that answers requests: over HTTP for `forestay up`, in the same process for a command."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from forestay.host import Host, Options, Retention, open_host, retaining, signing
from forestay.kernel import HttpRates, Problem
from forestay.surface import a2a, completions, crp, forms, hostapi, mcp, metrics, openwop
from forestay.surface.answers import contract_of
from forestay.surface.auth import Keys, KeyTable
from forestay.surface.connection_limits import Guard, within_files
from forestay.surface.dispatch import Dispatch, Pages
from forestay.surface.fellows import with_fellows
from forestay.surface.front import Front
from forestay.surface.host_names import HostNames
from forestay.surface.limits import Load, RateLimits
from forestay.surface.openwop.off import unmatched
from forestay.surface.operations import Operation
from forestay.surface.services import Services

DRAIN_SECONDS = 10.0


class Serving(msgspec.Struct, frozen=True):
    """A host that answers requests; `door` receives them, over a socket at `url` or in this process."""

    url: str
    host: Host
    services: Services
    app: Dispatch
    guard: Guard
    door: Front

    async def drain(self) -> None:
        """Take no new work, end streams, and wait until nodes reach a recorded point."""
        self.services.load.draining = True
        self.services.closing.set()
        await self.host.runs.drain(DRAIN_SECONDS)


@asynccontextmanager
async def serve(
    options: Options,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    console: Callable[[Services], Pages] | None = None,
    prepare: Callable[[Serving], Awaitable[None]] | None = None,
) -> AsyncIterator[Serving]:
    """Open the data folder and serve it over HTTP; leaving the block drains.

    `console` adds pages for people. `prepare` sets up what callers need, such as keys; the server accepts connections
    after it.
    """
    from forestay.surface.server import bind, serving, url_of

    bound = bind(address, port)
    try:
        async with _answering(options, url_of(bound), console) as made:
            if prepare is not None:
                await prepare(made)
            host = made.host
            async with (
                signing(host.audit, host.ledger, shared=host.locks.shared),
                retaining(Retention(host.ledger, host.clock, host.locks, host.config.retention, host.runs.forget)),
                with_fellows(made.services, made.url),
                serving(made.door, bound, made.guard),
            ):
                try:
                    yield made
                finally:
                    await made.drain()
    finally:
        bound.close()


@asynccontextmanager
async def serve_here(options: Options) -> AsyncIterator[Serving]:
    """Open the data folder for callers in this process: the same operations and answers, without a socket."""
    async with _answering(options, "http://localhost") as made:
        try:
            yield made
        finally:
            await made.drain()


@asynccontextmanager
async def _answering(
    options: Options, url: str, console: Callable[[Services], Pages] | None = None
) -> AsyncIterator[Serving]:
    opening = msgspec.structs.replace(options, projections=(*options.projections, KeyTable()))
    async with open_host(opening) as host:
        services = await _services(host, options)
        pages = console(services) if console is not None else None
        dispatch = dispatch_over(services, options.config.http.public_url or url, lambda: front, pages)
        guard = Guard(within_files(options.config.http.limits), host.ids)
        counted = metrics.HttpMetrics(host.metrics.registry, services.load, guard)
        front = Front(dispatch, services, counted, HostNames(options.config.http, url))
        yield Serving(url, host, services, dispatch, guard, front)


def dispatch_over(services: Services, url: str, door: Callable[[], ASGIApp], pages: Pages | None = None) -> Dispatch:
    """Put every operation of a host behind one router and one admission; `door` returns the application to call."""
    host = services.host
    operations: list[Operation] = []
    operations += openwop.operations(services, operations)
    operations += hostapi.operations(services)
    operations += metrics.api.of(host)
    operations += forms.api.of(forms.Forms(host))
    operations += crp.operations(host.relay)
    operations += a2a.api.of(a2a.A2A(host, url))
    operations += completions.operations(services)
    operations += mcp.api.of(mcp.McpEndpoint(door, url, host.clock, host.ids))
    _check_routes(host.config.http.rates, [*operations, *(pages.operations if pages is not None else ())])
    return Dispatch(
        operations,
        lambda request: services.keys.authenticate(authorization(request)),
        services.limits,
        services.load,
        host.idempotency,
        clock=host.clock,
        ids=host.ids,
        unmatched=unmatched,
        closing=services.closing,
        pages=pages,
    )


def authorization(request: Request) -> str | None:
    """Return the request's key as an `Authorization` header; Anthropic's clients send it as `x-api-key`."""
    said = request.headers.get("authorization")
    if said is None and contract_of(request.url.path) == "anthropic" and "x-api-key" in request.headers:
        return f"Bearer {request.headers['x-api-key']}"
    return said


def _check_routes(rates: HttpRates, operations: Sequence[Operation]) -> None:
    """Refuse a rate for an unknown operation: it would limit nothing."""
    known = {item.name for item in operations}
    for name in rates.routes:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise Problem(
                "config_invalid",
                f"http.rates.routes names no operation: {name[:80]}.",
                at=f"http.rates.routes.{name[:80]}",
                fix=f"Did you mean `{close[0]}`?" if close else "See the reference of the HTTP operations.",
            )


async def _services(host: Host, options: Options) -> Services:
    http = options.config.http
    keys = Keys(host.ledger, host.clock, host.ids, host.locks)
    await keys.load()
    return Services(
        host=host,
        keys=keys,
        limits=RateLimits(http.rates, host.clock),
        load=Load(
            http.limits.requests,
            http.limits.streams,
            requests_per_key=http.limits.requests_per_key,
            streams_per_key=http.limits.streams_per_key,
        ),
        closing=asyncio.Event(),
        sample_seams=options.sample_seams,
    )
