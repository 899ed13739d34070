"""A clock that does not jump while the ledger's threads work: a slow disk must not look like time that passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from forestay.kernel import Append, ManualClock, Record
from forestay.kernel.ledger.projections import Database
from forestay.kernel.ledger.sqlite import SqliteLedger
from forestay.kernel.ledger.table_ledger import TableLedger
from tests.kernel.ledger.at_path import LedgerAtPath
from tests.postgres import ON_POSTGRES

T = TypeVar("T")


class PatientClock(ManualClock):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"threshold": 0.002, **options})
        self.in_flight = 0

    def jump(self, seconds: float) -> None:
        if not self.in_flight:
            super().jump(seconds)


class _Counted(TableLedger):
    """Tells its clock what is on its way."""

    def __init__(self, path: Any, *, clock: PatientClock, **options: Any) -> None:
        self._patient = clock
        super().__init__(path, clock=clock, **options)  # type: ignore[call-arg]

    async def commit(self, *appends: Append) -> list[Record]:
        self._patient.in_flight += 1
        try:
            return await super().commit(*appends)
        finally:
            self._patient.in_flight -= 1

    async def _read(self, work: Callable[[Database], T]) -> T:
        self._patient.in_flight += 1
        try:
            return await super()._read(work)
        finally:
            self._patient.in_flight -= 1


class _CountedSqlite(_Counted, SqliteLedger):
    pass


class _CountedPg(_Counted, LedgerAtPath):
    pass


CountedLedger: type[_CountedSqlite | _CountedPg] = _CountedPg if ON_POSTGRES else _CountedSqlite
