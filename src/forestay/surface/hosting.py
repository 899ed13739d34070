"""A host that answers over HTTP: what `forestay up` runs, and what commands open when none is running."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
from starlette.types import ASGIApp

from forestay.host import Host, Options, open_host
from forestay.kernel import HttpRates, Problem
from forestay.surface import a2a, crp, hostapi, mcp, metrics, openwop
from forestay.surface.auth import Keys, KeyTable
from forestay.surface.connection_limits import Guard, within_files
from forestay.surface.dispatch import Dispatch, Pages
from forestay.surface.front import Front
from forestay.surface.limits import Load, RateLimits
from forestay.surface.openwop.off import unmatched
from forestay.surface.operations import Operation
from forestay.surface.server import bind, serving, url_of
from forestay.surface.services import Services

DRAIN_SECONDS = 10.0


class Serving(msgspec.Struct, frozen=True):
    """A host that can be reached at `url`."""

    url: str
    host: Host
    services: Services
    app: Dispatch
    guard: Guard


@asynccontextmanager
async def serve(
    options: Options,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    console: Callable[[Services], Pages] | None = None,
    prepare: Callable[[Serving], Awaitable[None]] | None = None,
) -> AsyncIterator[Serving]:
    """Open the data folder and serve it; leaving the block drains: no new work, streams end, nodes reach a record.

    `console` adds pages for people. `prepare` makes ready what callers will ask for, such as keys and workflows: the
    server accepts connections when it is done.
    """
    bound = bind(address, port)
    try:
        opening = msgspec.structs.replace(options, projections=(*options.projections, KeyTable()))
        async with open_host(opening) as host:
            services = await _services(host, options)
            url = options.config.http.public_url or url_of(bound)
            pages = console(services) if console is not None else None
            dispatch = dispatch_over(services, url, lambda: front, pages)
            guard = Guard(within_files(options.config.http.limits), host.ids)
            front = Front(dispatch, services, metrics.HttpMetrics(host.metrics.registry, services.load, guard))
            made = Serving(url_of(bound), host, services, dispatch, guard)
            if prepare is not None:
                await prepare(made)
            async with serving(front, bound, guard):
                try:
                    yield made
                finally:
                    services.load.draining = True
                    services.closing.set()
                    await host.runs.drain(DRAIN_SECONDS)
    finally:
        bound.close()


def dispatch_over(services: Services, url: str, door: Callable[[], ASGIApp], pages: Pages | None = None) -> Dispatch:
    """Every operation of a host behind one router and one admission; `door` is how callers reach them."""
    host = services.host
    operations: list[Operation] = []
    operations += openwop.operations(services, operations)
    operations += hostapi.operations(services)
    operations += metrics.api.of(host)
    operations += crp.operations(host.relay)
    operations += a2a.api.of(a2a.A2A(host, url))
    operations += mcp.api.of(mcp.McpEndpoint(door, url, host.clock, host.ids))
    _check_routes(host.config.http.rates, [*operations, *(pages.operations if pages is not None else ())])
    return Dispatch(
        operations,
        lambda request: services.keys.authenticate(request.headers.get("authorization")),
        services.limits,
        services.load,
        host.idempotency,
        clock=host.clock,
        ids=host.ids,
        unmatched=unmatched,
        closing=services.closing,
        pages=pages,
    )


def _check_routes(rates: HttpRates, operations: Sequence[Operation]) -> None:
    """A rate for an operation that does not exist would limit nothing."""
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
    keys = Keys(host.ledger, host.clock, host.ids)
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
