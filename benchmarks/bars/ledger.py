"""Bars of the ledger: beside plain sqlite3 with the same durability, and with millions of records."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import kernel
from benchmarks.bars.bar import Bar, Measured
from forestay.kernel import Draft, Ledger

_FEW, _MANY = 10_000, 10_000_000
_AT_ONCE = 1_000
_PLAIN = "plain sqlite3, {}, with the same durability"


def bars(share: float) -> list[Bar]:
    many = round(_MANY * share)
    append, verify = f"an append at {many:,} records, of one at {_FEW:,}", f"verifying one of {many:,}, of {_FEW:,}"
    return [
        Bar("one", "appends of one task, of plain sqlite3", "times", 0.5, 0.8, lambda: _appends(1), more=True),
        Bar("hundred", "appends of 100 tasks, of plain sqlite3", "times", 2.1, 4.0, lambda: _appends(100), more=True),
        Bar("append", append, "times", None, 1.2, lambda: _big(many).append),
        Bar("verify", verify, "times", None, 1.2, lambda: _big(many).verify),
    ]


def _appends(tasks: int) -> Measured:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        plain = kernel._plain(folder / "plain.db")
        grouped = plain if tasks == 1 else kernel._plain(folder / "grouped.db", tasks)
        ours = asyncio.run(_ours(folder / "ledger.db", tasks))
    how = "one insert a transaction" if tasks == 1 else f"{tasks} inserts a transaction"
    return Measured(ours / plain, grouped / plain, _PLAIN.format(how))


async def _ours(path: Path, tasks: int) -> float:
    async with Ledger.open(path) as ledger:
        return max([await kernel._appends(ledger, f"t{turn}", tasks, max(100, 400 // tasks)) for turn in range(5)])


class Big(NamedTuple):
    append: Measured
    verify: Measured


_found: list[Big] = []


def _big(many: int) -> Big:
    """Measure both figures of one large ledger, which is filled once."""
    if not _found:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
            _found.append(asyncio.run(_measured(Path(name) / "ledger.db", many)))
    return _found[0]


async def _measured(path: Path, many: int) -> Big:
    async with Ledger.open(path) as ledger:
        await _fill(ledger, 0, _FEW)
        early = await _costs(ledger)
        await _fill(ledger, _FEW, max(many, 2 * _FEW))
        late = await _costs(ledger)
    same = "what it costs in the small one"
    return Big(Measured(late[0] / early[0], 1.0, same), Measured(late[1] / early[1], 1.0, same))


async def _fill(ledger: Ledger, first: int, last: int) -> None:
    for number in range(first, last, _AT_ONCE):
        await ledger.append(f"run/{number}", [Draft("bench.event", kernel.PAYLOAD) for _ in range(_AT_ONCE)])


async def _costs(ledger: Ledger) -> tuple[float, float]:
    """Return the seconds of an append, the best of three stretches, and of verifying one record."""
    append = 1 / max([await kernel._appends(ledger, f"at{time.monotonic_ns()}", 1, 400) for _ in range(3)])
    began = time.perf_counter()
    found = await ledger.verify()
    return append, (time.perf_counter() - began) / found.records
