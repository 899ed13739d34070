"""What the ledger holds: records, and how they are chained."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from forestay.kernel.canonical import encode_each, encode_strict
from forestay.kernel.problems import Problem

GENESIS = bytes(32)
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
MAX_TIME = 2**63 - 1  # what a BIGINT holds
# (stream, seq, id, type, ts, payload, attrs or None, hash), as the table has them
Row = tuple[int, int, str, str, int, bytes, bytes | None, bytes]
_STREAM_NAME = re.compile(r"[a-z][a-z0-9_-]*(?:/[A-Za-z0-9._:@~-]+)*")
_TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._:-]*")
_MOST_OF_A_NAME = 512  # characters
_MOST_OF_A_TYPE = 128
_MOST_NAMES = 1024  # that are remembered to be right or wrong


class Draft(msgspec.Struct, frozen=True):
    """A record before it has its place. `id` and `ts` are given by the ledger unless the caller knows them."""

    type: str
    payload: Any = msgspec.field(default_factory=dict)
    attrs: dict[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None
    ts: int | None = None


class Record(msgspec.Struct, frozen=True, gc=False):
    """One link of a stream's chain: `hash` covers every other field, `prev` included."""

    stream: str
    seq: int
    id: str
    type: str
    ts: int
    payload: Any
    attrs: dict[str, Any]
    prev: str
    hash: str


class Head(msgspec.Struct, frozen=True):
    """Where a stream stands: the last sequence (-1 when empty) and its hash."""

    seq: int
    hash: str

    @property
    def next(self) -> int:
        return self.seq + 1


class Place(msgspec.Struct, frozen=True):
    """Where a record stands in the order in which all were written, and its hash."""

    position: int
    stream: str
    seq: int
    hash: str


class Append(msgspec.Struct, frozen=True):
    """Drafts for one stream; with `expect`, only if the stream's last sequence is that number (-1: empty)."""

    stream: str
    drafts: Sequence[Draft]
    expect: int | None = None


class Fault(msgspec.Struct, frozen=True):
    """A place where the chain does not hold."""

    stream: str
    seq: int
    what: str


class Verification(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `verify` looked at and what it found. `sealed` of the `records` are in archives; `removed` ones are no more,
    but for their hashes, which lead to the heads."""

    streams: int
    records: int
    faults: list[Fault]
    sealed: int = 0
    removed: int = 0

    @property
    def ok(self) -> bool:
        return not self.faults


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A draft whose JSON is made: the caller's thread pays for that, not the writer. `said` and `about` are the plain
    values that readers of `payload` and `attrs` will get."""

    type: str
    id: str | None
    ts: int | None
    payload: bytes
    attrs: bytes
    said: Any
    about: dict[str, Any]


def encode_appends(appends: Sequence[Append]) -> list[list[Encoded]]:
    """The JSON of all drafts; each stream may stand once."""
    for item in appends:
        check_stream(item.stream)
    if len(appends) > 1:
        _check_once([item.stream for item in appends])
    drafts = [draft for item in appends for draft in item.drafts]
    said = iter(encode_each([draft.payload for draft in drafts]))
    about = iter(encode_each([draft.attrs for draft in drafts if draft.attrs]))
    return [
        [_encoded(draft, *next(said), *(next(about) if draft.attrs else (b"{}", {}))) for draft in item.drafts]
        for item in appends
    ]


def _check_once(streams: list[str]) -> None:
    for name, count in Counter(streams).items():
        if count > 1:
            raise Problem("invalid_request", f"The stream {name} stands twice in one commit.", stream=name)


def _encoded(draft: Draft, payload: bytes, said: Any, attrs: bytes, about: Any) -> Encoded:
    """A draft with its bytes, and what readers and followers get: plain values that no caller can change."""
    if not _is_type(draft.type):
        raise Problem("schema_mismatch", f"{draft.type[:80]!r} is not a record type.", at="$.type")
    if len(payload) + len(attrs) > MAX_PAYLOAD_BYTES:
        raise Problem(
            "payload_too_large",
            f"A record may hold {MAX_PAYLOAD_BYTES} bytes; this one has {len(payload) + len(attrs)}.",
            limit=MAX_PAYLOAD_BYTES,
            observed=len(payload) + len(attrs),
            fix="Store the content elsewhere and record its hash.",
        )
    return Encoded(draft.type, draft.id, draft.ts, payload, attrs, said, about)


def check_stream(name: str) -> None:
    if len(name) > _MOST_OF_A_NAME or not _is_stream(name):
        raise Problem(
            "schema_mismatch",
            f"{name[:80]!r} is not a stream name.",
            at="$.stream",
            fix="Use a lower-case family and segments: run/01h…, ext/name, audit.",
        )


@lru_cache(maxsize=_MOST_NAMES)
def _is_stream(name: str) -> bool:
    """Whether a stream may have this name. The same ones are written to again and again."""
    return _STREAM_NAME.fullmatch(name) is not None


def _is_type(name: str) -> bool:
    return len(name) <= _MOST_OF_A_TYPE and _is_short_type(name)


@lru_cache(maxsize=_MOST_NAMES)
def _is_short_type(name: str) -> bool:
    return _TYPE_NAME.fullmatch(name) is not None


def check_record(record: Record) -> None:
    """Refuse a record that no ledger could have written: somebody made it up."""
    check_stream(record.stream)
    if not _is_type(record.type) or "\0" in record.id or not -MAX_TIME <= record.ts <= MAX_TIME:
        raise Problem(
            "schema_mismatch",
            f"The record at {record.seq} of {record.stream} has a type, an id or a time that no ledger writes.",
            stream=record.stream,
            seq=record.seq,
        )


class Tail:
    """Where a stream ends, as its writer knows it, and how it goes on (L1, L3)."""

    __slots__ = ("_json", "_ts", "hash", "id", "name", "seq")

    def __init__(self, id: int, name: str, seq: int, hash: bytes, ts: int) -> None:
        self.id = id
        self.name = name
        self.seq = seq
        self.hash = hash
        self._ts = ts
        self._json = msgspec.json.encode(name)

    def __copy__(self) -> Tail:
        other = Tail.__new__(Tail)
        other.id, other.name, other.seq, other.hash = self.id, self.name, self.seq, self.hash
        other._ts, other._json = self._ts, self._json
        return other

    def extend(self, drafts: Sequence[Encoded], now: int, ids: Iterator[str], rows: list[Row]) -> list[Record]:
        """Give each draft its place, and add its row to `rows`; `ids` has one for each, which is for those that have
        none of their own."""
        records = []
        number, name, seq, hash, digits = self.id, self.name, self.seq, self.hash, self.hash.hex()
        for item, new in zip(drafts, ids, strict=False):  # ends with the drafts: what is left of the ids is for others
            prev, type, payload, about = digits, item.type, item.payload, item.about
            id = item.id or new
            ts = self._ts = max(now, self._ts) if item.ts is None else item.ts
            seq += 1
            hash, _ = link(self._json, seq, id, type, ts, payload, item.attrs, hash)
            digits = hash.hex()
            rows.append((number, seq, id, type, ts, payload, item.attrs if about else None, hash))
            records.append(Record(name, seq, id, type, ts, item.said, about, prev, digits))
        self.seq, self.hash = seq, hash
        return records


def link(
    stream: bytes, seq: int, id: str, type: str, ts: int, payload: bytes, attrs: bytes, prev: bytes
) -> tuple[bytes, bytes]:
    """The hash of a record, and the canonical bytes it is taken over. `stream` is the name as JSON."""
    preimage = b'{"attrs":%b,"id":%b,"payload":%b,"prev":"%b","seq":%d,"stream":%b,"ts":%d,"type":%b}' % (
        attrs,
        msgspec.json.encode(id),
        payload,
        prev.hex().encode(),
        seq,
        stream,
        ts,
        msgspec.json.encode(type),
    )
    return hashlib.sha256(preimage).digest(), preimage


def hash_of(record: Record) -> bytes:
    """The hash that `record` should carry."""
    return link(
        msgspec.json.encode(record.stream),
        record.seq,
        record.id,
        record.type,
        record.ts,
        encode_strict(record.payload),
        encode_strict(record.attrs),
        bytes.fromhex(record.prev),
    )[0]
