"""`/host/v1/ledger`: streams, records, and whether every chain holds. The ledger is everybody's, so the operator's."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from forestay.host import Host
from forestay.kernel import Problem, iso
from forestay.runs import LedgerView, RecordShown
from forestay.surface.operations import Body, Call, Operation, Query, Result

Text = Annotated[str, Meta(max_length=512)]
Limit = Annotated[int, Meta(ge=1, le=1000)]


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


class StreamView(Result, frozen=True, omit_defaults=False):
    stream: str
    head: int
    hash: str


class StreamList(Result, frozen=True, omit_defaults=False):
    streams: list[StreamView]
    records: int
    more_after: str | None


class RecordView(Result, frozen=True, omit_defaults=False):
    seq: int
    id: str
    type: str
    at: str
    payload: Any
    attrs: dict[str, Any]
    prev: str
    hash: str
    masked: bool  # something is hidden from this caller: `hash` is of the record as it is stored


class RecordList(Result, frozen=True, omit_defaults=False):
    stream: str
    head: int
    records: list[RecordView]


class Verified(Result, frozen=True, omit_defaults=False):
    ok: bool
    streams: int
    records: int
    faults: list[dict[str, Any]]


def operations(host: Host) -> list[Operation]:
    ledger = host.ledger

    async def streams(call: Call) -> Response:
        call.caller.require_operator()
        query: StreamsQuery = call.query
        found = await ledger.streams(query.prefix, query.after, query.limit)
        shown = [StreamView(stream=name, head=head.seq, hash=head.hash) for name, head in found.items()]
        more = shown[-1].stream if len(shown) == query.limit else None
        return call.answer(StreamList(streams=shown, records=await ledger.position(), more_after=more))

    async def records(call: Call) -> Response:
        call.caller.require_operator()
        query: RecordsQuery = call.query
        head = await ledger.head(query.stream)
        if head.seq < 0:
            raise Problem("not_found", "There is no such stream.")
        view = LedgerView(ledger, host.runs, call.caller.reads_runs_of)
        found = await view.read(query.stream, query.start, query.limit)
        return call.answer(RecordList(stream=query.stream, head=head.seq, records=[_record(item) for item in found]))

    async def verify(call: Call) -> Response:
        call.caller.require_operator()
        found = await ledger.verify(call.body.prefix if call.body else "")
        faults = [msgspec.to_builtins(item) for item in found.faults]
        return call.answer(Verified(ok=found.ok, streams=found.streams, records=found.records, faults=faults))

    common: dict[str, Any] = {"scopes": ("audit:read",), "contract": "lafs", "tag": "ledger"}
    return [
        Operation(
            name="ledger.streams",
            method="GET",
            path="/host/v1/ledger/streams",
            perform=streams,
            summary="The streams of the ledger, by name, with their heads.",
            query=StreamsQuery,
            answers={200: StreamList},
            problems=("schema_mismatch", "out_of_range"),
            **common,
        ),
        Operation(
            name="ledger.records",
            method="GET",
            path="/host/v1/ledger/records",
            perform=records,
            summary="Records of one stream, oldest first; without `runs:read`, what a run hides is masked.",
            query=RecordsQuery,
            answers={200: RecordList},
            problems=("schema_mismatch", "out_of_range", "not_found"),
            **common,
        ),
        Operation(
            name="ledger.verify",
            method="POST",
            path="/host/v1/ledger/verify",
            perform=verify,
            summary="Check every chain, or those whose names begin with `prefix`.",
            body=Verify,
            body_optional=True,
            answers={200: Verified},
            problems=("schema_mismatch",),
            **common,
        ),
    ]


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
