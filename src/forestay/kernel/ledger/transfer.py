"""Moves records between ledgers as lines of JSON, with their hashes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from forestay.kernel import canonical
from forestay.kernel.ledger.projections import Database, Projection, forget_others
from forestay.kernel.ledger.records import MAX_PAYLOAD_BYTES, Head, Record, Row, check_record, hash_of
from forestay.kernel.ledger.tables import insert_records, move_heads, stream_row
from forestay.kernel.problems import Problem

if TYPE_CHECKING:
    from forestay.kernel.ledger.ledger import Ledger

_COPY_PAGE = 5_000
Insert = Callable[[Database, list[Row]], object]
# The state of each stream during an import: its id, its head and that record's hash.
_Heads = dict[str, tuple[int, int, str]]


async def export(ledger: Ledger, prefix: str) -> AsyncIterator[bytes]:
    """Yield every record under `prefix` as a line of canonical JSON; a Problem if it names one removed stream."""
    after = 0
    while page := await ledger.read_all(prefix, after):
        after = page[-1][0]
        for _, record in page:
            yield canonical.encode(record) + b"\n"
    if after == 0 and (gone := await ledger.removal(prefix)) is not None:
        raise gone.problem()


def take_in(
    tx: Database, lines: Iterable[bytes], projections: Sequence[Projection], insert: Insert = insert_records
) -> int:
    """Write every line's record; each must continue its stream and match its hash."""
    heads: _Heads = {}
    count = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = canonical.decode(line, Record, limit=MAX_PAYLOAD_BYTES + 4096)
        _check(tx, heads, record, number)
        insert(tx, [_row(heads, record)])
        for projection in projections:
            if record.stream.startswith(projection.prefix):
                projection.apply(tx, [record])
        count += 1
    move_heads(tx, [(head, bytes.fromhex(digest), stream_id) for stream_id, head, digest in heads.values()])
    forget_others(tx, projections)
    return count


def _check(tx: Database, heads: _Heads, record: Record, line: int) -> None:
    check_record(record)
    if record.stream not in heads:
        number, last, digest = stream_row(tx, record.stream)
        heads[record.stream] = (number, last, digest.hex())
    _, head, hash = heads[record.stream]
    if record.seq != head + 1 or record.prev != hash:
        raise Problem(
            "ledger_conflict",
            f"Line {line} does not continue the stream {record.stream}, which stands at {head}.",
            stream=record.stream,
            seq=record.seq,
            line=line,
        )
    if hash_of(record).hex() != record.hash:
        raise Problem(
            "chain_broken",
            f"Line {line} does not match its hash.",
            stream=record.stream,
            seq=record.seq,
            line=line,
        )


def _row(heads: _Heads, record: Record) -> Row:
    """Return the record as a row of the table, and move its stream's head there."""
    stream_id = heads[record.stream][0]
    heads[record.stream] = (stream_id, record.seq, record.hash)
    payload, attrs = canonical.encode(record.payload), canonical.encode(record.attrs) if record.attrs else None
    return stream_id, record.seq, record.id, record.type, record.ts, payload, attrs, bytes.fromhex(record.hash)


class Copied(msgspec.Struct, frozen=True):
    """How many records `copy_ledger` copied, and the size of the target."""

    copied: int
    records: int
    streams: int


async def copy_ledger(source: Ledger, target: Ledger, told: Callable[[int], None] = lambda count: None) -> Copied:
    """Copy every record of `source` to `target`, which is empty or has the first of them, and verify the result.

    A page is written whole or not at all, so another call continues an interrupted copy. `told` gets the number of
    copied records after each page.
    """
    await _check_whole(source)
    heads = await _common(source, target)
    copied, after, end = 0, 0, await source.position()
    while after < end and (page := await source.read_all("", after, _COPY_PAGE)):
        after = page[-1][0]
        fresh = [record for _, record in page if record.seq > heads.get(record.stream, -1)]
        if fresh:
            copied += await target.import_lines([canonical.encode(record) + b"\n" for record in fresh])
            told(copied)
    await _copy_keys(source, target)
    found = await target.verify()
    if not found.ok:
        fault = found.faults[0]
        message = f"The copy failed verification: {fault.stream} at {fault.seq}: {fault.what}."
        raise Problem("chain_broken", message, stream=fault.stream, seq=fault.seq)
    async for name, head in _streams(source):
        if await target.head(name) != head:
            raise Problem(
                "state_conflict",
                f"{name} was written while the ledger was copied.",
                stream=name,
                fix="Stop the processes that write to it, and copy again: no record is copied twice.",
            )
    return Copied(copied, found.records, found.streams)


async def _check_whole(source: Ledger) -> None:
    """Refuse to copy a ledger with removed records: the copy could not prove its heads."""
    removed = await source.query(
        "SELECT s.name FROM archives a JOIN streams s ON s.id = a.stream WHERE a.removed IS NOT NULL LIMIT 1"
    )
    if removed and (gone := await source.removal(removed[0][0])) is not None:
        problem = gone.problem()
        fix = "Copy the database itself, with the tools of SQLite or PostgreSQL."
        raise Problem(problem.key, f"A ledger with removed records cannot be copied. {problem.message}", fix=fix)


async def _copy_keys(source: Ledger, target: Ledger) -> None:
    """Copy the vault's keys, and destroy those that the source no longer has."""
    vault, copy = source.vault(), target.vault()
    names = await vault.names("")
    for name, key in (await vault.get(names)).items():
        await copy.keep(name, key)
    await copy.destroy(sorted(set(await copy.names("")) - set(names)))


async def _common(source: Ledger, target: Ledger) -> dict[str, int]:
    """Return the heads of the streams of `target`; a Problem if one of them is not a beginning of its source stream."""
    heads = {}
    async for name, head in _streams(target):
        same = await source.read(name, head.seq, 1) if head.seq >= 0 else []
        if head.seq >= 0 and (not same or same[0].hash != head.hash):
            raise Problem(
                "ledger_conflict",
                f"The target's stream {name} does not come from the source.",
                stream=name,
                fix="Name an empty target.",
            )
        heads[name] = head.seq
    return heads


async def _streams(ledger: Ledger) -> AsyncIterator[tuple[str, Head]]:
    after = ""
    while page := await ledger.streams("", after):
        for after, head in page.items():
            yield after, head
