"""The ledger: its streams, their records, and whether it holds."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forestay.console.parts import Parts, number_of, operator_of
from forestay.kernel import Problem
from forestay.runs import LedgerView

_PAGE = 100


async def show(request: Request, parts: Parts) -> Response:
    operator_of(request)
    return await _listing(request, parts)


async def verify(request: Request, parts: Parts) -> Response:
    """Check every chain now, and show what was found."""
    operator_of(request)
    return await _listing(request, parts, verification=await parts.ledger.verify())


async def stream(request: Request, parts: Parts) -> Response:
    caller = operator_of(request)
    name = request.path_params["stream"]
    start = number_of(request, "start")
    view = LedgerView(parts.ledger, parts.runs, caller.reads_runs_of)
    records = [shown.record for shown in await view.read(name, start, _PAGE)]
    head = await parts.ledger.head(name)
    if head.seq < 0:
        raise Problem("not_found", "There is no such stream.")
    return parts.templates.page(
        request,
        "stream.html",
        name=name,
        records=records,
        head=head,
        start=start,
        page_size=_PAGE,
        page_of=_page_of(name),
    )


def _page_of(stream: str) -> tuple[str, str] | None:
    """The page that shows what this stream tells of, and its name."""
    kind, _, name = stream.partition("/")
    found = {"run": f"/runs/{name}", "relay": f"/relay/{name}", "trust": "/trust"}.get(kind)
    return (found, {"run": "the run", "relay": "the session", "trust": "what is trusted"}[kind]) if found else None


async def _listing(request: Request, parts: Parts, verification: object = None) -> Response:
    prefix = request.query_params.get("prefix", "")
    streams = await parts.ledger.streams(prefix, request.query_params.get("after", ""), _PAGE)
    return parts.templates.page(
        request,
        "ledger.html",
        streams=streams,
        prefix=prefix,
        more=list(streams)[-1] if len(streams) == _PAGE else None,
        records=await parts.ledger.position(),
        verification=verification,
    )
