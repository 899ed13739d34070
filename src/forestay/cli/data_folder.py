"""The data folder of a command: its ledger, and the note of the host that has it open."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from forestay.kernel import Problem, config, kept_in

if TYPE_CHECKING:
    from forestay.kernel import Ledger

Data = Annotated[Path | None, typer.Option("--data", help="The data folder, or a ledger file; default: data.dir.")]

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        "--ledger",
        help="The ledger's database, postgresql://user@host/database; default: FORESTAY_DATABASE, or data.ledger.",
    ),
]


def database_flag(database: str | None) -> dict[str, str]:
    """Return the value of `--database` as a setting."""
    return {} if database is None else {"data.ledger": database}


def no_database(message: str) -> Problem:
    fix = "Give --database postgresql://…, or set FORESTAY_DATABASE."
    return Problem("config_invalid", message, at="--database", fix=fix)


def data_folder(data: Path | None) -> Path:
    return data or Path(config.load().config.data.dir)


def ledger_address(data: Path | None, *, make: bool, fix: str) -> Path | str:
    """Return the ledger of `--data`, a folder or the file itself; without `--data`, the ledger of the settings.

    Raise `not_found` with `fix` when the file does not exist, unless `make` lets the caller create it.
    """
    if data is None and (address := config.load().config.data.ledger):
        return address
    path = data_folder(data)
    with kept_in(path):
        if path.is_dir() or path.suffix != ".db":
            path = path / "ledger.db"
        if not make and not path.exists():
            raise Problem("not_found", f"There is no ledger at {path}.", fix=fix)
    return path


@asynccontextmanager
async def opened_ledger(data: Data = None) -> AsyncIterator[Ledger]:
    """Open the ledger; create it when there is none."""
    async with _opened(ledger_address(data, make=True, fix="")) as ledger:
        yield ledger


@asynccontextmanager
async def existing_ledger(data: Data = None) -> AsyncIterator[Ledger]:
    """Open the ledger, which must exist."""
    async with _opened(ledger_address(data, make=False, fix="Start the host once, or give --data.")) as ledger:
        yield ledger


@asynccontextmanager
async def _opened(address: Path | str) -> AsyncIterator[Ledger]:
    from forestay.kernel import Ledger

    async with Ledger.open(address) as ledger:
        yield ledger


def announce(data: Path, url: str) -> Path:
    """Write a note with the address of this folder's host, so that commands find it."""
    path = data / "host.json"
    path.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    return path


def announced(data: Path) -> str | None:
    """Return the address of the host that has this folder open, or None.

    A killed process leaves its note behind, and another process may have its number by now (in a container often this
    one). So the host counts only if something listens at its address.
    """
    try:
        note = json.loads((data / "host.json").read_text())
        pid, url = int(note["pid"]), str(note["url"])
        if pid == os.getpid():
            return None
        os.kill(pid, 0)
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=2):
            return url
    except (OSError, ValueError, KeyError, TypeError):
        return None
