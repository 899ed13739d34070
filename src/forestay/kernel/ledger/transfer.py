"""Moving records between ledgers as lines of JSON, hashes included."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from forestay.kernel import canonical
from forestay.kernel.ledger.projections import Database, Projection, forget_others
from forestay.kernel.ledger.records import MAX_PAYLOAD_BYTES, Record, Row, check_stream, hash_of
from forestay.kernel.ledger.tables import insert_records, move_head, stream_row
from forestay.kernel.problems import Problem

if TYPE_CHECKING:
    from forestay.kernel.ledger.ledger import Ledger

Insert = Callable[[Database, list[Row]], object]
# Where each stream stands while lines come in: its id, its head and that record's hash.
_Heads = dict[str, tuple[int, int, str]]


async def export(ledger: Ledger, prefix: str) -> AsyncIterator[bytes]:
    """Every record under `prefix` as a line of canonical JSON."""
    after = 0
    while page := await ledger.read_all(prefix, after):
        after = page[-1][0]
        for _, record in page:
            yield canonical.encode(record) + b"\n"


def take_in(
    tx: Database, lines: Iterable[bytes], projections: Sequence[Projection], insert: Insert = insert_records
) -> int:
    """Write every line's record, checking that each continues its stream and matches its hash."""
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
    for stream_id, head, digest in heads.values():
        move_head(tx, stream_id, head, bytes.fromhex(digest))
    forget_others(tx, projections)
    return count


def _check(tx: Database, heads: _Heads, record: Record, line: int) -> None:
    check_stream(record.stream)
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
    """The record as the table has it; its stream stands there from now on."""
    stream_id = heads[record.stream][0]
    heads[record.stream] = (stream_id, record.seq, record.hash)
    payload, attrs = canonical.encode(record.payload), canonical.encode(record.attrs) if record.attrs else None
    return stream_id, record.seq, record.id, record.type, record.ts, payload, attrs, bytes.fromhex(record.hash)
