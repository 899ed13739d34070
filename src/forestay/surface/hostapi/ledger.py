"""`/host/v1/ledger`: streams, records and verification. It has every tenant's records, so it is the operator's."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forestay.host import Host
from forestay.kernel import Head, Problem, iso
from forestay.runs import LedgerView, RecordShown
from forestay.surface.auth import Caller
from forestay.surface.operations import Body, Call, Operations, Query, View

Text = Annotated[str, Meta(max_length=512)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
api = Operations[Host](scopes=("audit:read",), operator=True, contract="lafs", tag="ledger")


class StreamsQuery(Query, frozen=True):
    prefix: Text = ""
    after: Text = ""
    limit: Limit = 100


class RecordsQuery(Query, frozen=True):
    stream: Annotated[str, Meta(min_length=1, max_length=512)]
    start: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Limit = 100


class Verify(Body, frozen=True):
    prefix: Text = ""


class StreamView(View, frozen=True):
    stream: str
    head: int
    hash: str


class StreamList(View, frozen=True):
    streams: list[StreamView]
    records: int
    more_after: str | None


class RecordView(View, frozen=True):
    seq: int
    id: str
    type: str
    at: str
    payload: Any
    attrs: dict[str, Any]
    prev: str
    hash: str
    masked: bool  # something is hidden from this caller; `hash` is of the stored record


class RecordList(View, frozen=True):
    stream: str
    head: int
    records: list[RecordView]


class Verified(View, frozen=True):
    ok: bool
    streams: int
    records: int
    faults: list[dict[str, Any]]


@api.get("/host/v1/ledger/streams", "ledger.streams", StreamList, problems=("out_of_range",))
async def streams(host: Host, call: Call, query: StreamsQuery) -> StreamList:
    """The streams of the ledger, by name, with their heads."""
    found = await host.ledger.streams(query.prefix, query.after, query.limit)
    shown = [StreamView(stream=name, head=head.seq, hash=head.hash) for name, head in found.items()]
    more = shown[-1].stream if len(shown) == query.limit else None
    return StreamList(streams=shown, records=await host.ledger.count(), more_after=more)


@api.get("/host/v1/ledger/records", "ledger.records", RecordList, problems=("out_of_range", "not_found"))
async def records(host: Host, call: Call, query: RecordsQuery) -> RecordList:
    """Records of one stream, oldest first; without `runs:read`, what a run hides is masked."""
    head, found = await read_stream(host, call.caller, query.stream, query.start, query.limit)
    return RecordList(stream=query.stream, head=head.seq, records=[_record(item) for item in found])


@api.post("/host/v1/ledger/verify", "ledger.verify", Verified)
async def verify(host: Host, call: Call, body: Verify | None) -> Verified:
    """Check every chain, or those whose names begin with `prefix`."""
    found = await host.ledger.verify(body.prefix if body else "")
    faults = [msgspec.to_builtins(item) for item in found.faults]
    return Verified(ok=found.ok, streams=found.streams, records=found.records, faults=faults)


async def read_stream(
    host: Host, caller: Caller, stream: str, start: int, limit: int
) -> tuple[Head, list[RecordShown]]:
    """Return the head of a stream and some of its records, as `caller` may see them."""
    head = await host.ledger.head(stream)
    if head.seq < 0:
        raise Problem("not_found", "There is no such stream.")
    return head, await LedgerView(host.ledger, host.runs, caller.reads_runs_of).read(stream, start, limit)


def _record(shown: RecordShown) -> RecordView:
    record = shown.record
    return RecordView(
        seq=record.seq,
        id=record.id,
        type=record.type,
        at=iso(record.ts),
        payload=record.payload,
        attrs=dict(record.attrs),
        prev=record.prev,
        hash=record.hash,
        masked=shown.masked,
    )
