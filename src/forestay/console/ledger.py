"""The ledger: its streams, their records, and their verification."""

from __future__ import annotations

from starlette.responses import Response

from forestay.console.visit import Visit, form, page
from forestay.surface import read_stream

_PAGE = 100


@page("/ledger", "ledger", operator=True)
async def show(visit: Visit) -> Response:
    """The streams of the ledger."""
    return await _listing(visit)


@form("/ledger/verify", "ledger.verify", operator=True)
async def verify(visit: Visit) -> Response:
    """Check every chain now, and show what was found."""
    return await _listing(visit, verification=await visit.host.ledger.verify())


@page("/ledger/{stream}", "ledger.stream", operator=True)
async def stream(visit: Visit) -> Response:
    """The records of one stream."""
    name, start = visit.path["stream"], visit.number("start")
    head, found = await read_stream(visit.host, visit.caller, name, start, _PAGE)
    return visit.page(
        "stream.html",
        name=name,
        records=[shown.record for shown in found],
        head=head,
        start=start,
        page_size=_PAGE,
        page_of=_page_of(name),
    )


def _page_of(stream: str) -> tuple[str, str] | None:
    """Return the address and the name of the page about this stream's subject, or None."""
    kind, _, name = stream.partition("/")
    found = {"run": f"/runs/{name}", "relay": f"/relay/{name}", "trust": "/trust"}.get(kind)
    return (found, {"run": "the run", "relay": "the session", "trust": "what is trusted"}[kind]) if found else None


async def _listing(visit: Visit, verification: object = None) -> Response:
    prefix = visit.asked("prefix")
    streams = await visit.host.ledger.streams(prefix, visit.asked("after"), _PAGE)
    return visit.page(
        "ledger.html",
        streams=streams,
        prefix=prefix,
        more=list(streams)[-1] if len(streams) == _PAGE else None,
        records=await visit.host.ledger.count(),
        verification=verification,
    )
