"""A ledger at a path that is on PostgreSQL: with it, tests that know nothing of databases run on either.

Processes that a test starts do the same: they find `started/sitecustomize.py` first.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Self

from forestay.kernel.ledger.ledger import BACKENDS
from forestay.kernel.ledger.postgres import PgLedger
from forestay.runs import service
from tests.kernel.ledger.shelf import Shelf, is_elsewhere, open_elsewhere
from tests.postgres import SERVER, address_of, server_address

_shelf: Shelf | None = None  # of the process that runs the tests


class LedgerAtPath(PgLedger):
    """A ledger on PostgreSQL that is named by the path of the file that it would be on SQLite.

    The file is there with the ledger's address in it: commands ask whether there is one.
    """

    def __init__(self, path: Path | str, **options: Any) -> None:
        self._schema, self._counts = schema_at(path), False
        if is_elsewhere():
            open_elsewhere(server_address(), self._schema)
        elif _shelf is not None:
            _shelf.opened(self._schema, Path(path).resolve(), options.get("projections", ()))
            self._counts = True
        super().__init__(address_of(self._schema), **options)

    def close(self) -> None:
        super().close()
        if self._counts and _shelf is not None:
            self._counts = False
            _shelf.closed(self._schema)

    @classmethod
    def open(cls, address: Path | str, **options: Any) -> Self:
        path = Path(address)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(address_at(path))
        return cls(path, **options)


def use_postgres() -> None:
    """From now on every ledger at a path is on PostgreSQL, here and in the processes that are started from here."""
    global _shelf
    BACKENDS["file"] = f"{__name__}:LedgerAtPath"
    service._SHARED_SWEEP_SECONDS = service._SWEEP_SECONDS  # where time jumps, each look costs
    os.environ[SERVER] = server_address()
    _shelf = Shelf(server_address())
    here = Path(__file__)
    paths = [str(here.with_name("started")), str(here.parents[3]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def give_back(folder: Path) -> None:
    """Have the ledgers in a test's folder used again: the test is over."""
    if _shelf is not None:
        _shelf.give_back(folder.resolve())


def address_at(path: Path | str) -> str:
    return address_of(schema_at(path))


def schema_at(path: Path | str) -> str:
    return "at_" + hashlib.sha256(str(Path(path).resolve()).encode()).hexdigest()[:16]
