"""Keeps the warm state of a session in a file beside the ledger, so that resuming it does not read all its records.

The ledger stays the source of truth: the file holds nothing that the records cannot give again, and is never exported.

Invariants:

- P1  A session that is opened from its snapshot and the later records equals the fold of all its records.
- P2  A file is used only when this relay wrote every byte of it, for this session and this place of its stream, in this
      version. Any other file is ignored, and the records are folded.
- P3  Facts and postings are read from the file when they are first needed.
- P4  The file exists completely or not at all: it is written under another name and renamed when it is complete.
"""

from __future__ import annotations

import hmac
import mmap
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from sys import byteorder, intern
from typing import Any, SupportsIndex, overload

import blake3
import msgspec

from forestay.kernel import Head
from forestay.relay.extract import Kind
from forestay.relay.facts import Fact, Origin
from forestay.relay.guard import Role
from forestay.relay.index import Index
from forestay.relay.types import SessionConfig
from forestay.relay.warm import Claims, Contradiction, Sources, Warm

_MAGIC = f"forestay session 1 {byteorder}\n".encode()
_KEYED = "forestay relay snapshot 1"
_HASH = 32
_ALIGNED = 8
_INDEXES = ("index", "cold")


class State(msgspec.Struct, frozen=True):
    """The parts of a warm state beside its facts and indexes; the names are those of `Warm`."""

    app_id: str
    role: Role
    bound: bool
    nonce: bytes
    proof: str
    created_ms: int
    expires_ms: int
    expired: bool
    config: SessionConfig
    sealed: str | None
    binding: str | None
    providers: list[str]
    violations: int
    speakers: set[str]
    copies: dict[int, list[int]]
    out: set[int]
    corrects: dict[str, list[str]]
    open_contradictions: list[Contradiction]
    rates: list[float]
    windows: int
    productive: int
    input_tokens: int
    output_tokens: int
    reserved: int
    answered: set[str]


class _Header(msgspec.Struct, frozen=True):
    """The snapshot's session, its last record, and the places of its parts in the file."""

    session: str
    head: Head
    state: State
    parts: dict[str, tuple[int, int]]


class _Row(msgspec.Struct, array_like=True, gc=False):
    """A fact in the file's form."""

    origin: int
    text: str
    kind: Kind
    start: int
    size: int
    context: str
    entity: str
    relation: str
    confidence: float
    shown: int
    superseded_by: int
    folded_into: int
    quarantined: bool
    talk: bool


_rows = msgspec.msgpack.Decoder(_Row)
_origins = msgspec.msgpack.Decoder(Origin)
_encode = msgspec.msgpack.Encoder().encode
_NOTHING = dict.fromkeys(("facts", "fact_ends", "origins", "origin_ends"), memoryview(b""))
_LATER = Fact(-1, "", "sentence", Origin("", 0, 0, 0.0, b""), 0, 0, "", "", "", 0.0)


class KeptFacts(list[Fact]):
    """The facts of a snapshot and the later ones. A fact of the file is decoded on first use, and kept."""

    def __init__(self, parts: dict[str, memoryview]) -> None:
        self._rows, self._ends = parts["facts"], parts["fact_ends"].cast("Q")
        self._origins, self._origin_ends = parts["origins"], parts["origin_ends"].cast("Q")
        self._known: dict[int, Origin] = {}
        super().__init__([_LATER] * len(self._ends))

    @overload
    def __getitem__(self, at: SupportsIndex) -> Fact: ...
    @overload
    def __getitem__(self, at: slice) -> list[Fact]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Fact | list[Fact]:
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        fact = super().__getitem__(at)
        return fact if fact is not _LATER else self._made(range(len(self))[at])

    def __iter__(self) -> Iterator[Fact]:
        return map(self.__getitem__, range(len(self)))

    def __reversed__(self) -> Iterator[Fact]:
        return map(self.__getitem__, range(len(self) - 1, -1, -1))

    def row(self, number: int) -> memoryview:
        return _between(self._rows, self._ends, number)

    def origins(self) -> tuple[bytearray, array[int], dict[int, int]]:
        """Return the file's origins, the end of each, and the places of the decoded ones by `id()`."""
        places = {id(origin): place for place, origin in list(self._known.items())}
        return bytearray(self._origins), array("Q", self._origin_ends), places

    def _made(self, number: int) -> Fact:
        row = _rows.decode(self.row(number))
        origin = self._known.get(row.origin)
        if origin is None:
            origin = _origins.decode(_between(self._origins, self._origin_ends, row.origin))
            self._known[row.origin] = origin
        fact = self[number] = Fact(
            number,
            row.text,
            row.kind,
            origin,
            row.start,
            row.size,
            intern(row.context),
            row.entity,
            row.relation,
            row.confidence,
            shown=row.shown,
            superseded_by=row.superseded_by,
            folded_into=row.folded_into,
            quarantined=row.quarantined,
            talk=row.talk,
        )
        return fact


def write(
    path: Path, warm: Warm, session: str, head: Head, secret: bytes, still: Callable[[], bool] = lambda: True
) -> bool:
    """Write `warm`, the fold of the records up to `head`; discard the file when `still()` is false at the end (P4)."""
    assert warm.dispatch is None and not warm.closed, "only a session at rest is kept"
    parts = {**_facts(warm.facts), "claims": _encode(list(warm.claims.items())), "sources": _encode(warm.sources)}
    for name in _INDEXES:
        index: Index = getattr(warm, name)
        parts |= {f"{name}.{part}": data for part, data in index.written().items()}
    body, places = bytearray(), {}
    for name, data in parts.items():
        places[name] = (len(body), len(data))
        body += data + bytes(-len(data) % _ALIGNED)
    small = {name: getattr(warm, name) for name in State.__struct_fields__}
    header = _encode(_Header(session, head, State(**{**small, "rates": list(warm.rates)}), places))
    size = len(_MAGIC) + _HASH + 8 + len(header)
    rest = len(header).to_bytes(8, "big") + header + bytes(-size % _ALIGNED) + body
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    with os.fdopen(os.open(beside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as out:
        out.write(_MAGIC + _keyed(secret, rest) + rest)
        out.flush()
        os.fsync(out.fileno())
    if not still():
        beside.unlink()
        return False
    beside.replace(path)
    return True


def read(path: Path, session: str, secret: bytes) -> tuple[Warm, Head] | None:
    """Return the warm state in the file and the last record in it; None without a usable file (P2)."""
    try:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        header, body = _opened(data, secret)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    if header.session != session:
        return None
    parts = {name: body[start : start + size] for name, (start, size) in header.parts.items()}
    warm = Warm()
    small = {name: getattr(header.state, name) for name in State.__struct_fields__}
    warm.rates.extend(small.pop("rates"))
    for name, value in small.items():
        setattr(warm, name, value)
    warm.facts = KeptFacts(parts)
    warm.kept, warm.kept_to = len(warm.facts), header.head.seq
    for name in _INDEXES:
        prefix = f"{name}."
        own = {part.removeprefix(prefix): view for part, view in parts.items() if part.startswith(prefix)}
        setattr(warm, name, Index.kept(own))
    warm.keep_for_later(lambda: _claims(parts["claims"]), lambda: _sources(parts["sources"]))
    return warm, header.head


def _opened(data: memoryview, secret: bytes) -> tuple[_Header, memoryview]:
    at = len(_MAGIC) + _HASH
    if data[: len(_MAGIC)] != _MAGIC or not hmac.compare_digest(_keyed(secret, data[at:]), data[len(_MAGIC) : at]):
        raise ValueError("not what this relay wrote")
    size = int.from_bytes(data[at : at + 8], "big")
    header = msgspec.msgpack.decode(data[at + 8 : at + 8 + size], type=_Header)
    end = at + 8 + size
    return header, data[end + -end % _ALIGNED :]


def _keyed(secret: bytes, data: bytes | bytearray | memoryview) -> bytes:
    return blake3.blake3(data, key=blake3.blake3(secret, derive_key_context=_KEYED).digest()).digest()


def _facts(facts: list[Fact]) -> dict[str, bytes]:
    """Return every fact encoded; a fact that was not decoded is copied from the earlier snapshot."""
    before = facts if isinstance(facts, KeptFacts) else KeptFacts(_NOTHING)
    rows, ends = bytearray(), array("Q")
    origins, origin_ends, places = before.origins()
    for number in range(len(facts)):
        fact = list.__getitem__(facts, number)
        if fact is _LATER:
            rows += before.row(number)
        else:
            if (place := places.get(id(fact.origin))) is None:
                place = places[id(fact.origin)] = len(origin_ends)
                origins += _encode(fact.origin)
                origin_ends.append(len(origins))
            rows += _encode(_row(fact, place))
        ends.append(len(rows))
    parts = {"facts": rows, "fact_ends": ends, "origins": origins, "origin_ends": origin_ends}
    return {name: bytes(part) for name, part in parts.items()}


def _row(fact: Fact, origin: int) -> _Row:
    return _Row(
        origin,
        fact.text,
        fact.kind,
        fact.start,
        fact.size,
        fact.context,
        fact.entity,
        fact.relation,
        fact.confidence,
        fact.shown,
        fact.superseded_by,
        fact.folded_into,
        fact.quarantined,
        fact.talk,
    )


def _between(data: memoryview, ends: memoryview, number: int) -> memoryview:
    return data[ends[number - 1] if number else 0 : ends[number]]


def _claims(data: memoryview) -> Claims:
    pairs: list[Any] = msgspec.msgpack.decode(data)
    return {
        (source, context, attribute): None if value is None else (list(value[0]), value[1])
        for (source, context, attribute), value in pairs
    }


def _sources(data: memoryview) -> Sources:
    return msgspec.msgpack.decode(data, type=dict[str, tuple[int, int]])
