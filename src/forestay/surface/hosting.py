"""A host that answers over HTTP: what `forestay up` runs, and what commands open when none is running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
from starlette.types import ASGIApp

from forestay.host import Host, Options, open_host
from forestay.surface import crp, hostapi, metrics
from forestay.surface.a2a import A2A
from forestay.surface.app import App, build_app
from forestay.surface.auth import Keys, KeyTable
from forestay.surface.front import Front
from forestay.surface.guard import Guard, within_files
from forestay.surface.limits import Load, RateLimits, Rates
from forestay.surface.server import bind, serving, url_of
from forestay.surface.services import Services

DRAIN_SECONDS = 10.0


# Other applications that are served beside the operations, by path prefix.
Mounts = Callable[[Host, Services], Mapping[str, ASGIApp]]


class Serving(msgspec.Struct, frozen=True):
    """A host that can be reached at `url`."""

    url: str
    host: Host
    services: Services
    app: App
    guard: Guard


Prepare = Callable[[Serving], Awaitable[None]]


@asynccontextmanager
async def serve(
    options: Options,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    rates: Rates | None = None,
    mounts: Mounts | None = None,
    prepare: Prepare | None = None,
) -> AsyncIterator[Serving]:
    """Open the data folder and serve it; leaving the block drains: no new work, streams end, nodes reach a record.

    `prepare` makes ready what callers will ask for, such as keys and workflows: nobody can connect before it is done.
    """
    bound = bind(address, port)
    try:
        opening = msgspec.structs.replace(options, projections=(*options.projections, KeyTable()))
        async with open_host(opening) as host:
            services = await _services(host, options, rates)
            own = [*metrics.operations(host), *hostapi.operations(host, services), *crp.operations(host.relay)]
            beside = A2A(host, services, options.config.http.public_url or url_of(bound)).mounts()
            app = build_app(services, more=own, mounts={**beside, **(mounts(host, services) if mounts else {})})
            guard = Guard(within_files(options.config.http.limits), host.ids)
            measured = metrics.HttpMetrics(host.metrics.registry, services.load, guard)
            front = Front(app, services, measured, host.tracing)
            made = Serving(url_of(bound), host, services, app, guard)
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


async def _services(host: Host, options: Options, rates: Rates | None) -> Services:
    limits = options.config.http.limits
    keys = Keys(host.ledger, host.clock, host.ids)
    await keys.load()
    return Services(
        ledger=host.ledger,
        runs=host.runs,
        keys=keys,
        idempotency=host.idempotency,
        webhooks=host.webhooks,
        schedules=host.schedules,
        limits=RateLimits(rates or Rates(), host.clock),
        load=Load(
            limits.requests,
            limits.streams,
            requests_per_key=limits.requests_per_key,
            streams_per_key=limits.streams_per_key,
        ),
        clock=host.clock,
        ids=host.ids,
        closing=asyncio.Event(),
        sample_seams=options.sample_seams,
        capabilities=host.capabilities,
        left_out=host.left_out,
    )
