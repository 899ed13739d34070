"""The ledger: append-only streams of hash-chained records. Everything that happens is a record of one of them.

`Ledger` is what every backend gives. A backend is one module with these methods, and its line in `BACKENDS`.

Invariants, of every backend:

- L1  A stream's sequences are 0, 1, 2, … without a gap.
- L2  When `append` returns, the records are on disk; what it did not acknowledge may or may not be there.
- L3  A record's hash covers all its fields and the hash of the record before it.
- L4  With `expect`, records are written only if the stream stands exactly there.
- L5  What goes into several streams in one call goes in whole or not at all.
- L6  A projection has seen exactly the records that are there: it changes in the same transaction.
- L7  What one caller appends first comes first.
- L8  A follower gets every record from its start on, once, in order, however slow it is.
- L9  When writing fails, a Problem says so, reading goes on, and the next write starts clean.
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
"""The class of each kind of address, by the address's scheme; a path is a `file`."""


class Ledger(Protocol):
    """One ledger. Use `async with Ledger.open(path) as ledger`, or `close()` it yourself."""

    @staticmethod
    def open(address: Path | str, **options: Any) -> Ledger:
        """The ledger at `address`: the path of a SQLite file, or `postgresql://user@host/database`.

        Options: `projections`, `clock`, `ids`, and what the backend knows besides. With `sole` the ledger is refused
        while another process has opened it so, where processes on several machines may.
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
        """Write what is waiting, then let the database go."""

    def observe(self, watch: Callable[[list[Record], float], None]) -> None:
        """Have `watch` called after each commit, by whoever wrote, with its records and the seconds it took."""

    def workers(self, name: str, queue: Queue) -> Workers | None:
        """This process under `name` among those that share the ledger; None where only one process writes to it."""

    def vault(self) -> Vault:
        """The keys beside the ledger, for what a record must be able to lose."""

    # Writing

    async def append(self, stream: str, drafts: Sequence[Draft], expect: int | None = None) -> list[Record]:
        """Append `drafts` to `stream`; the records are on disk when this returns (L2)."""

    async def commit(self, *appends: Append) -> list[Record]:
        """Append to several streams, all or nothing (L5). A cancelled caller does not take its records back."""

    def submit(self, *appends: Append, later: bool = False) -> Future[list[Record]]:
        """As `commit`, for threads: the future is done when the records are on disk. With `later` they are written in
        front of what is written next, in its transaction where there is room, or with `write_now`."""

    def write_now(self) -> None:
        """Write what was submitted for later."""

    # Retention

    async def seal(self, *streams: str) -> int:
        """Move the oldest records of each stream from the table into an archive; how many it moved. Call it again until
        there are none: an archive holds a bounded number. Everybody reads them as before."""

    async def remove(self, *streams: str, policy: dict[str, Any]) -> list[str]:
        """Remove the contents of those streams that are sealed to their ends, and tell of it; which ones. Who reads
        them hears a Problem with the policy; their heads and the hashes of their records stay."""

    # Reading

    async def read(
        self, stream: str, start: int = 0, limit: int | None = None, *, reverse: bool = False
    ) -> list[Record]:
        """Records of `stream` from sequence `start` on; with `reverse`, the last ones, newest first."""

    async def head(self, stream: str) -> Head:
        """Where `stream` stands."""

    async def streams(self, prefix: str = "", after: str = "", limit: int = 1000) -> dict[str, Head]:
        """Streams whose name starts with `prefix`, by name, with their heads."""

    async def read_all(self, prefix: str = "", after: int = 0, limit: int = 1000) -> list[tuple[int, Record]]:
        """Records of all streams under `prefix` in the order they were written, each with its position."""

    async def places(self, after: int = 0, limit: int = 1000) -> list[Place]:
        """What `read_all` gives of all streams, without what the records say."""

    async def place(self, stream: str, seq: int) -> Place | None:
        """Where one record stands in the order of all, also when it was removed; None when it never was."""

    async def removal(self, stream: str) -> Removal | None:
        """What was removed of a stream; None when all of it is there."""

    async def position(self) -> int:
        """The position of the last record of all."""

    async def count(self) -> int:
        """How many records there are."""

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Ask a projection's tables, in the dialect of `projections`. Reads only."""

    async def look_up(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """As `query`, for a few rows that an index leads to: where the database is in this process, they are read at
        once, without another thread."""

    def follow(self, stream: str, start: int = 0, *, poll: float | None = None) -> AsyncGenerator[Record, None]:
        """Records of `stream` from `start` on, and then each new one as it is written (L8).

        Records written by this process arrive without polling; to see those of another process, give `poll` seconds.
        """

    def follow_all(
        self, prefix: str = "", after: int | None = None, *, poll: float | None = None
    ) -> AsyncGenerator[tuple[int, Record], None]:
        """Records of every stream under `prefix` in written order, each with its position, and then each new one."""

    # The whole

    async def verify(self, prefix: str = "", trusted: Mapping[str, Head] | None = None) -> Verification:
        """Check every chain under `prefix`, or only what came after the heads in `trusted` (L1, L3)."""

    def export(self, prefix: str = "") -> AsyncIterator[bytes]:
        """Every record as one line of canonical JSON, in written order."""

    async def import_lines(self, lines: Iterable[bytes]) -> int:
        """Take in what `export` wrote: whole, with its hashes, or not at all. Streams must go on where they stand."""
