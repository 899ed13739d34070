"""Tells processes on one PostgreSQL that another has written: a NOTIFY after the commit, and a poll each second.

A hint may be lost; the next poll finds its records. Hints have their own connection. The first is sent at once, and
later ones are gathered for some milliseconds, because a NOTIFY holds a lock of the whole database until its
transaction is on disk.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Collection, Iterable

import psycopg
from psycopg import sql

from forestay.kernel.ledger.postgres_dialect import Connection
from forestay.kernel.ledger.postgres_pipe import Pipe, Statement, texts, value_of
from forestay.kernel.ledger.postgres_server import HORIZON, PgServer
from forestay.kernel.ledger.records import Record
from forestay.kernel.ledger.writer import Feeds

_GATHER_SECONDS = 0.01
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 0.2
_MOST_BYTES = 7900  # in one NOTIFY
_MOST_STREAMS = 1000  # in one poll
_NOTIFY = "SELECT pg_notify(?, l) FROM unnest(?::text[]) l"


class Hints:
    """Tells other processes which streams grew, and makes our followers read the records of others."""

    def __init__(self, server: PgServer, feeds: Feeds) -> None:
        self._server = server
        self._feeds = feeds
        self._me = secrets.token_hex(6)
        self._grown: set[str] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._listening, name="forestay-ledger-hear", daemon=True)]
        if not server.read_only:
            self._threads.append(threading.Thread(target=self._telling, name="forestay-ledger-tell", daemon=True))
        for thread in self._threads:
            thread.start()

    def tell(self, records: Iterable[Record]) -> None:
        """Send a hint about these records to other processes; returns at once."""
        with self._lock:
            self._grown.update(record.stream for record in records)
        self._wake.set()

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        for thread in self._threads:
            thread.join()

    # Telling

    def _telling(self) -> None:
        pipe: Pipe | None = None
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            pipe = self._tell_now(pipe)
            self._closed.wait(_GATHER_SECONDS)  # later writes share one hint
        _close(self._tell_now(pipe))

    def _tell_now(self, pipe: Pipe | None) -> Pipe | None:
        with self._lock:
            grown, self._grown = self._grown, set()
        try:
            if pipe is None:
                pipe = Pipe(self._server.connect())
                pipe.connection.execute("SET synchronous_commit = off")
            self._notify(pipe, grown)
        except psycopg.Error:
            _close(pipe)
            return None  # a hint may be lost: the poll finds the records
        return pipe

    def _notify(self, pipe: Pipe, grown: set[str]) -> None:
        lines = _lines(self._me, sorted(grown))
        if self._closed.is_set():
            lines.append(self._me)  # wakes our own listener
        if lines:
            pipe.run([Statement(_NOTIFY, (value_of(self._server.channel), texts(lines)))])

    # Hearing

    def _listening(self) -> None:
        while not self._closed.is_set():
            connection: Connection | None = None
            try:
                connection = self._server.connect()
                if not self._server.read_only:  # a standby takes no LISTEN
                    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._server.channel)))
                self._hear(connection)
            except psycopg.Error:
                self._closed.wait(_AGAIN_SECONDS)
            finally:
                if connection is not None:
                    connection.close()

    def _hear(self, connection: Connection) -> None:
        horizon = self._look(connection, None)
        looked = time.monotonic()
        while not self._closed.is_set():
            for notice in connection.notifies(timeout=_LOOK_SECONDS, stop_after=1):
                told_by, *streams = notice.payload.split(" ")
                if told_by != self._me and streams:
                    self._feeds.stale(streams)
            if time.monotonic() - looked >= _LOOK_SECONDS:
                horizon = self._look(connection, horizon)
                looked = time.monotonic()

    def _look(self, connection: Connection, since: int | None) -> int:
        """Make followers read the records since the last poll; return where the next poll begins."""
        ((horizon,),) = connection.execute(f"SELECT {HORIZON}").fetchall()
        streams = connection.execute(
            "SELECT DISTINCT s.name FROM records r JOIN streams s ON s.id = r.stream WHERE r.pos >= %s LIMIT %s",
            (since, _MOST_STREAMS + 1),
        ).fetchall()
        everything = since is None or len(streams) > _MOST_STREAMS
        self._feeds.stale(None if everything else [name for (name,) in streams])
        return int(horizon)


def _lines(me: str, streams: Collection[str]) -> list[str]:
    """Return the sender and the streams that grew, in as many lines as NOTIFY's limit needs."""
    lines: list[str] = []
    for stream in streams:
        if not lines or len(lines[-1]) + len(stream) >= _MOST_BYTES:
            lines.append(me)
        lines[-1] += f" {stream}"
    return lines


def _close(pipe: Pipe | None) -> None:
    if pipe is not None:
        pipe.connection.close()
