"""Records of the ledger, and the hash chain over them."""

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
    """A record before it has its place. The ledger sets `id` and `ts` unless the caller gives them."""

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
    """The end of a stream: its last sequence (-1 when empty) and that record's hash."""

    seq: int
    hash: str

    @property
    def next(self) -> int:
        return self.seq + 1


class Place(msgspec.Struct, frozen=True):
    """A record's position in the order of all records, and its hash."""

    position: int
    stream: str
    seq: int
    hash: str


class Append(msgspec.Struct, frozen=True):
    """Drafts for one stream; with `expect`, they are written only if its last sequence is that number (-1: empty)."""

    stream: str
    drafts: Sequence[Draft]
    expect: int | None = None


class Fault(msgspec.Struct, frozen=True):
    """A place where the chain does not hold."""

    stream: str
    seq: int
    what: str


class Verification(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of `verify`. `sealed` of the `records` are in archives. Of `removed` records only the hashes are left;
    they lead to the heads."""

    streams: int
    records: int
    faults: list[Fault]
    sealed: int = 0
    removed: int = 0

    @property
    def ok(self) -> bool:
        return not self.faults


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A draft with its JSON, which the caller's thread makes. `said` and `about` are the plain values that readers of
    `payload` and `attrs` get."""

    type: str
    id: str | None
    ts: int | None
    payload: bytes
    attrs: bytes
    said: Any
    about: dict[str, Any]


def encode_appends(appends: Sequence[Append]) -> list[list[Encoded]]:
    """Encode all drafts; each stream may be named once."""
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
            raise Problem("invalid_request", f"The stream {name} is named twice in one commit.", stream=name)


def _encoded(draft: Draft, payload: bytes, said: Any, attrs: bytes, about: Any) -> Encoded:
    """Check a draft and add its bytes, and plain values for readers that no caller can change."""
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
    """Whether a stream may have this name; remembered, because the same streams are written again and again."""
    return _STREAM_NAME.fullmatch(name) is not None


def _is_type(name: str) -> bool:
    return len(name) <= _MOST_OF_A_TYPE and _is_short_type(name)


@lru_cache(maxsize=_MOST_NAMES)
def _is_short_type(name: str) -> bool:
    return _TYPE_NAME.fullmatch(name) is not None


def check_record(record: Record) -> None:
    """Refuse a record that no ledger could have written."""
    check_stream(record.stream)
    if not _is_type(record.type) or "\0" in record.id or not -MAX_TIME <= record.ts <= MAX_TIME:
        raise Problem(
            "schema_mismatch",
            f"The record at {record.seq} of {record.stream} has a type, an id or a time that no ledger writes.",
            stream=record.stream,
            seq=record.seq,
        )


class Tail:
    """The end of a stream, as its writer knows it; extends the chain (L1, L3)."""

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
        """Give each draft its place, and add its row to `rows`. `ids` has one id per draft, for drafts without their
        own."""
        records = []
        number, name, seq, hash, digits = self.id, self.name, self.seq, self.hash, self.hash.hex()
        for item, new in zip(drafts, ids, strict=False):  # ends with the drafts; the other ids are for the next stream
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
    """Return a record's hash and the canonical bytes that it covers. `stream` is the name as JSON."""
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
    """Compute the hash that `record` must carry."""
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
