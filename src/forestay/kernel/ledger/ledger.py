"""The ledger: append-only streams of hash-chained records. Everything that happens is a record of a stream.

`Ledger` is the protocol of every backend. A backend is one module with these methods, and a line in `BACKENDS`.

Invariants of every backend:

- L1  A stream's sequences are 0, 1, 2, … without a gap.
- L2  When `append` returns, the records are on disk; records that it did not acknowledge may or may not be there.
- L3  A record's hash covers all its fields and the hash of the record before it.
- L4  With `expect`, records are written only if the stream's head is exactly that sequence.
- L5  One call writes to all of its streams or to none.
- L6  A projection matches the stored records exactly: it changes in the same transaction.
- L7  The appends of one caller keep their order.
- L8  A follower gets every record from its start on, once, in order, however slow it is.
- L9  A failed write raises a Problem; reading continues, and the next write starts clean.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol, Self

from forestay.kernel.ledger.archives import Removal
from forestay.kernel.ledger.records import Append, Draft, Head, Place, Record, Verification
from forestay.kernel.ledger.vault import Vault
from forestay.kernel.ledger.workers import Queue, Workers
from forestay.kernel.problems import Problem

BACKENDS = {
    "file": "forestay.kernel.ledger.sqlite:SqliteLedger",
    "postgresql": "forestay.kernel.ledger.postgres:PgLedger",
}
"""The backend's class for each scheme of an address; a path counts as `file`."""


class Ledger(Protocol):
    """One ledger. Use `async with Ledger.open(path) as ledger`, or `close()` it yourself."""

    @staticmethod
    def open(address: Path | str, **options: Any) -> Ledger:
        """Open the ledger at `address`: the path of a SQLite file, or `postgresql://user@host/database`.

        Options: `projections`, `clock`, `ids`, and those of the backend. With `sole`, a shared ledger is refused while
        another process has it open with `sole`.
        """
        scheme, separator, _ = str(address).partition("://")
        found = BACKENDS.get(scheme if separator else "file")
        if found is None:
            raise Problem("config_invalid", f"There is no ledger for {scheme}://.", at="ledger", known=sorted(BACKENDS))
        module, _, name = found.partition(":")
        try:
            backend: type[Ledger] = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            message = f"A ledger at {scheme}:// needs the package {error.name}."
            fix = "Install the extra `postgres`, which brings psycopg."
            raise Problem("config_invalid", message, at="ledger", fix=fix) from error
        return backend.open(address, **options)

    @property
    def read_only(self) -> bool:
        """Whether every append is refused."""

    @property
    def shared(self) -> bool:
        """Whether processes on several machines may write to it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Write the waiting records, then close the database."""

    def observe(self, watch: Callable[[list[Record], float], None]) -> None:
        """Call `watch` after each commit of this process, with the records and the seconds that it took."""

    def workers(self, name: str, queue: Queue) -> Workers | None:
        """Return this process, as `name`, among those that share the ledger; None if only one process writes to it."""

    def vault(self) -> Vault:
        """Return the keys beside the ledger; without its key, the sealed part of a record is unreadable."""

    # Writing

    async def append(self, stream: str, drafts: Sequence[Draft], expect: int | None = None) -> list[Record]:
        """Append `drafts` to `stream`; the records are on disk when this returns (L2)."""

    async def commit(self, *appends: Append) -> list[Record]:
        """Append to several streams, all or nothing (L5). Cancelling the caller does not undo the append."""

    def submit(self, *appends: Append, later: bool = False) -> Future[list[Record]]:
        """Commit from a thread: the future is done when the records are on disk.

        With `later` the records wait for the next write and go first, in its transaction if there is room, or for
        `write_now`.
        """

    def write_now(self) -> None:
        """Write what was submitted for later."""

    # Retention

    async def seal(self, *streams: str) -> int:
        """Move the oldest records of each stream from the table into an archive; return how many it moved.

        An archive holds a bounded number, so call it again until it returns 0. The records stay readable.
        """

    async def remove(self, *streams: str, policy: dict[str, Any]) -> list[str]:
        """Remove the contents of those streams that are sealed to their ends, and record it; return their names.

        Reading them raises a Problem with the policy. Their heads and the hashes of their records stay.
        """

    # Reading

    async def read(
        self, stream: str, start: int = 0, limit: int | None = None, *, reverse: bool = False
    ) -> list[Record]:
        """Return records of `stream` from sequence `start` on; with `reverse`, the last ones, newest first."""

    async def head(self, stream: str) -> Head:
        """Return the head of `stream`."""

    async def streams(self, prefix: str = "", after: str = "", limit: int = 1000) -> dict[str, Head]:
        """Return streams whose name starts with `prefix`, in order of name, with their heads."""

    async def read_all(self, prefix: str = "", after: int = 0, limit: int = 1000) -> list[tuple[int, Record]]:
        """Return records of all streams under `prefix` in written order, each with its position."""

    async def places(self, after: int = 0, limit: int = 1000) -> list[Place]:
        """Return the places of records of all streams, as `read_all` orders them, without their contents."""

    async def place(self, stream: str, seq: int) -> Place | None:
        """Return the place of one record among all, also of a removed one; None when it never existed."""

    async def removal(self, stream: str) -> Removal | None:
        """Return what was removed from a stream; None when it is complete."""

    async def position(self) -> int:
        """Return the position of the ledger's last record."""

    async def count(self) -> int:
        """Return the number of records."""

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Query the projections' tables, in the dialect of `projections`; it only reads."""

    async def look_up(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Query a few rows that an index finds; a database in this process is read at once, without another thread."""

    def follow(self, stream: str, start: int = 0, *, poll: float | None = None) -> AsyncGenerator[Record, None]:
        """Yield records of `stream` from `start` on, and then each new one as it is written (L8).

        Records of this process arrive without polling; to get those of another process, give `poll` in seconds.
        """

    def follow_all(
        self, prefix: str = "", after: int | None = None, *, poll: float | None = None
    ) -> AsyncGenerator[tuple[int, Record], None]:
        """Yield records of all streams under `prefix` in written order, with their positions, then each new one."""

    # The whole ledger

    async def verify(self, prefix: str = "", trusted: Mapping[str, Head] | None = None) -> Verification:
        """Check every chain under `prefix`, or only the records after the heads in `trusted` (L1, L3)."""

    def export(self, prefix: str = "") -> AsyncIterator[bytes]:
        """Yield every record as one line of canonical JSON, in written order."""

    async def import_lines(self, lines: Iterable[bytes]) -> int:
        """Import all lines of `export` with their hashes, or none. Each stream must continue at its head."""
