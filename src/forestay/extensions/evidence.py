"""Evidence: what every extension asked for, what was decided, how it ended (Pi §3.1, §3.4).

Invariants:

- E1  A call's records stand in the ledger stream of its extension, in the order in which things happened.
- E2  Parameters appear only as the hash of their canonical JSON; everything else is redacted.
- E3  Writing does not hold up a call, but when evidence can no longer be written, no further call is made.
- E4  The log file is a projection: its lines are made from records that are on disk.
- E5  Calls that repeat beyond what an ordinary extension does are counted in one record (`repeats.py`).
- E6  What is written is weighed, and `weigh(extension, kind, bytes)` hears of it: there are quotas (`authority.py`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from forestay.extensions.repeats import FULL_CALLS, Key, Repeats
from forestay.kernel import (
    Append,
    Clock,
    Draft,
    Ledger,
    Problem,
    Record,
    SystemClock,
    canonical,
    iso,
    redact,
    redact_text,
)

SCHEMA = "pi.ext.log.v1"
MAX_PENDING = 10_000
MAX_TEXT = 4096
_ROW = 200  # bytes that a record costs beside what it says
_WINDOW = 1.0
Level = Literal["debug", "info", "warn", "error"]
_UNSAFE = re.compile(r"[^A-Za-z0-9._:@~/-]")
_MESSAGES = {
    "host_call.start": "host call dispatched",
    "host_call.end": "host call completed",
    "host_call.repeated": "host call repeated",
    "policy.decision": "policy decided",
    "capability.resolve": "Resolved effective capabilities",
    "consent.asked": "a person is asked",
    "consent.answered": "a person answered",
    "grant.allow": "a capability was granted",
    "grant.deny": "a capability was denied",
    "grant.revoke": "a decision was taken back",
}
_PLACEHOLDERS = ("run_id", "session_id", "artifact_id", "trace_id", "span_id")


class Correlation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What joins log entries (§3.1); the first two are always there."""

    extension_id: str
    scenario_id: str
    session_id: str | None = None
    run_id: str | None = None
    artifact_id: str | None = None


class Evidence:
    """Writes the records of extensions: at once for the caller, in order for the ledger.

    Records wait a few hundredths of a second and go to the ledger together, by a thread of their own: in a burst of
    calls each costs the caller about as much as appending to a list.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        sink: Callable[[Record], None] | None = None,
        weigh: Callable[[str, Literal["evidence", "log"], int], None] | None = None,
        clock: Clock | None = None,
        delay: float = 0.02,
    ) -> None:
        self._ledger = ledger
        self._sink = sink
        self._weigh = weigh
        self._clock = clock or SystemClock()
        self._delay = delay
        self._pending: deque[tuple[str, Draft]] = deque()
        self._first: dict[str, int] = {}  # calls of an extension that are told in full before anything is counted
        self._repeats: dict[str, tuple[Correlation, Repeats]] = {}
        self._counting = threading.Lock()  # over these
        self._draining = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._last: Future[None] | None = None
        self._failure: BaseException | None = None

    def write(self, correlation: Correlation, *events: Event) -> None:
        """Take events to be written (E3); raises when an earlier write has failed."""
        if self._failure is not None:
            raise Problem("ledger_io", "Evidence cannot be written; no further call is made.") from self._failure
        shared = _shared(correlation)
        stream = stream_of(correlation.extension_id)
        if self._repeats:
            self._tell_counts(stream)
        for event in events:
            attrs = {**shared, **event.ids, "level": event.level}
            self._pending.append((stream, Draft(event.name, event.data, attrs, ts=event.at or self._clock.now_ms())))
        if len(self._pending) >= MAX_PENDING:
            self.flush()
        self._notify()

    def _notify(self) -> None:
        if self._thread is None:
            self._start()
        if not self._wake.is_set():  # else the thread is about to look, and finds this as well
            self._wake.set()

    # Repeats (E5)

    def in_full(self, correlation: Correlation, now: int) -> bool:
        """Whether the next call of an extension has records of its own, whatever it is."""
        left = self._first.get(correlation.extension_id, FULL_CALLS)
        if left:  # no lock: a call more or less makes no difference
            self._first[correlation.extension_id] = left - 1
            return True
        found = self._repeats.get(stream_of(correlation.extension_id))
        if found is not None and found[0] is correlation:  # nor here
            return found[1].in_full(now)
        with self._counting:
            return self._known(correlation, now).in_full(now)

    def counted(self, correlation: Correlation, key: Key, at: int, id: str, took: float) -> bool:
        """Count a call that ended, if calls like it are being counted."""
        with self._counting:
            found = self._repeats.get(stream_of(correlation.extension_id))
            return found is not None and found[0] is correlation and found[1].again(key, at, id, took)

    def repeat(self, correlation: Correlation, call: Ended) -> None:
        """Count a call that ended, or write its events when no such call is on record."""
        with self._counting:
            repeats = self._known(correlation, call.at)
            was_open = repeats.is_open
            counted = repeats.take(call.key, call.summary, call.at, call.id, call.took)
        if not counted:
            self.write(correlation, *call.events())
        elif not was_open:  # else the thread knows that it has to look within the window
            self._notify()

    def _known(self, correlation: Correlation, now: int) -> Repeats:
        """The repeats of an extension, with the lock held; another session's are told before its own begin."""
        stream = stream_of(correlation.extension_id)
        found = self._repeats.get(stream)
        if found is None:
            found = self._repeats[stream] = correlation, Repeats(now)
        elif found[0] != correlation:
            self._put_counts(stream, *found)
            found = self._repeats[stream] = correlation, found[1]
        return found[1]

    def _tell_counts(self, stream: str) -> None:
        known = self._repeats.get(stream)
        if known is not None and known[1].is_open:
            with self._counting:
                self._put_counts(stream, *known)

    def _put_counts(self, stream: str, correlation: Correlation, repeats: Repeats) -> None:
        for count in repeats.close():
            told = count.told()
            level = "warn" if told.get("is_error") else "info"
            attrs = {**_shared(correlation), "host_call_id": count.last_id, "level": level}
            self._pending.append((stream, Draft("host_call.repeated", told, attrs, ts=count.last)))

    def _tell_due(self, everything: bool) -> None:
        now = self._clock.now_ms()
        with self._counting:
            for stream, (correlation, repeats) in self._repeats.items():
                if repeats.is_open and (everything or repeats.is_due(now)):
                    self._put_counts(stream, correlation, repeats)

    def flush(self) -> None:
        """Wait until everything taken is on disk."""
        self._drain(everything=True)
        with self._draining:
            last = self._last
        if last is not None:
            last.exception()
        if self._failure is not None:
            raise Problem("ledger_io", "Some evidence could not be written.") from self._failure

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def _start(self) -> None:
        with self._draining:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="forestay-evidence", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(_WINDOW if self._is_counting() else None)
            self._wake.clear()
            self._closed.wait(self._delay)
            self._drain()

    def _is_counting(self) -> bool:
        with self._counting:
            return any(repeats.is_open for _, repeats in self._repeats.values())

    def _drain(self, everything: bool = False) -> None:
        self._tell_due(everything)
        with self._draining:  # one batch after the other, so that the ledger sees one order (E1)
            streams: dict[str, list[Draft]] = {}
            for _ in range(len(self._pending)):
                stream, draft = self._pending.popleft()
                streams.setdefault(stream, []).append(draft)
            if not streams:
                return
            try:
                future = self._submit(streams)
            except Problem as problem:
                self._failure = problem
                return
            told: Future[None] = Future()
            self._last = told  # done when the sink has heard it too (E4)
        future.add_done_callback(lambda done: self._settle(done, told))
        if self._weigh is not None:
            for drafts in streams.values():
                _weigh(drafts, self._weigh)

    def _submit(self, streams: dict[str, list[Draft]]) -> Future[list[Record]]:
        try:
            return self._ledger.submit(*(Append(stream, drafts) for stream, drafts in streams.items()))
        except Problem as problem:
            if problem.key not in ("invalid_text", "invalid_json", "payload_too_large"):
                raise
        # A name that an extension chose holds what a record cannot: it is written as far as it can be.
        cleaned = {stream: [_storable(draft) for draft in drafts] for stream, drafts in streams.items()}
        return self._ledger.submit(*(Append(stream, drafts) for stream, drafts in cleaned.items()))

    def _settle(self, future: Future[list[Record]], told: Future[None]) -> None:
        try:
            self._written(future)
        finally:
            told.set_result(None)

    def _written(self, future: Future[list[Record]]) -> None:
        error = future.exception()
        if error is not None:
            self._failure = error
        elif self._sink is not None:
            for record in future.result():
                self._sink(record)


class Event(msgspec.Struct, frozen=True):
    """One entry before it has its place: a stable name and data that may be written down (E2)."""

    name: str
    data: dict[str, Any]
    ids: dict[str, Any] = msgspec.field(default_factory=dict)
    level: Level = "info"
    at: int = 0
    """When it happened, if that is not when it is written."""


class Ended(msgspec.Struct, frozen=True):
    """A call whose records were held back: what makes it a repeat, since when, which, how long, and its events."""

    key: Key
    at: int
    id: str
    took: float
    events: Callable[[], list[Event]]

    def summary(self) -> dict[str, Any]:
        """What one record says of all its repeats together."""
        start, *decisions, end = (event.data for event in self.events())
        last = {name: value for name, value in (decisions[-1] if decisions else {}).items() if name != "scope"}
        return {**last, **{name: start[name] for name in start if name != "timeout_ms"}, **end}


def _weigh(drafts: list[Draft], weigh: Callable[[str, Literal["evidence", "log"], int], None]) -> None:
    """How many bytes the records of one extension have, and how many of them are its log (E6)."""
    written = logged = 0
    for draft in drafts:
        try:
            size = len(msgspec.json.encode((draft.payload, draft.attrs))) + _ROW
        except (TypeError, UnicodeError):  # what a record cannot hold is written as far as it can be
            size = MAX_TEXT
        written += size
        logged += size if draft.type == "extension.log" else 0
    extension = str((drafts[0].attrs or {}).get("extension_id", ""))
    weigh(extension, "evidence", written)
    if logged:
        weigh(extension, "log", logged)


@functools.lru_cache(maxsize=1024)
def _shared(correlation: Correlation) -> dict[str, Any]:
    """The correlation as plain data; copied, never changed, by those who use it."""
    plain: dict[str, Any] = msgspec.to_builtins(correlation)
    return plain


def _storable(draft: Draft) -> Draft:
    return Draft(draft.type, _plain(draft.payload), _plain(draft.attrs), draft.id, draft.ts)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT].encode("utf-8", "replace").decode().replace("\0", "\\u0000")
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def params_hash(method: str, params: Mapping[str, Any]) -> str:
    """sha256 hex over the canonical JSON of `{"method", "params"}` (§3.4)."""
    return weighed_params(method, params)[0]


def weighed_params(method: str, params: Mapping[str, Any]) -> tuple[str, int]:
    """The hash of a call's parameters, and how many bytes they have."""
    value = {"method": method, "params": params}
    try:
        data = canonical.encode(value)
    except Problem:  # a lone surrogate has no UTF-8; its escape does, and the call still leaves its record
        data = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()
    return hashlib.sha256(data).hexdigest(), len(data)


@functools.lru_cache(maxsize=1024)
def stream_of(extension: str) -> str:
    """The ledger stream of an extension, whatever characters its id has."""
    parts = [_UNSAFE.sub(lambda found: f"~{ord(found.group()):x}", part) for part in extension.split("/")]
    return "ext/" + "/".join(part or "~" for part in parts)[:480]


def log_entry(record: Record) -> dict[str, Any]:
    """A record as a line of `pi.ext.log.v1`."""
    attrs = dict(record.attrs)
    level = attrs.pop("level", "info")
    message = attrs.pop("message", None) or _MESSAGES.get(record.type, record.type)
    component = "extension" if record.type.startswith("extension.log") else "runtime"
    attrs.setdefault("extension_id", record.stream.removeprefix("ext/"))
    attrs.setdefault("scenario_id", "scn-local")
    return {
        "schema": SCHEMA,
        "ts": iso(record.ts),
        "level": level,
        "event": attrs.pop("event", record.type),
        "message": redact_text(message),
        "correlation": attrs,
        "source": {"component": component, "pid": os.getpid()},
        "data": redact(record.payload),
    }


def normalized(entry: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    """An entry as fixtures hold it: without what differs from run to run (§3.1)."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(entry).replace(cwd.encode(), b"<cwd>"))
    plain["ts"] = "<ts>"
    for key in _PLACEHOLDERS:
        if key in plain["correlation"]:
            plain["correlation"][key] = f"<{key}>"
    for key in ("pid", "host"):
        if key in plain.get("source", {}):
            plain["source"][key] = f"<{key}>"
    return plain


class LogFile:
    """The JSONL file of one session, at the documented place or in `PI_EXTENSION_LOG_DIR` (E4)."""

    def __init__(self, session: str, *, folder: Path | None = None, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        named = environ.get("PI_EXTENSION_LOG_DIR")
        folder = folder or (Path(named) if named else Path.home() / ".pi" / "agent" / "logs" / "extensions")
        self.path = folder / (re.sub(r"[^A-Za-z0-9._-]", "_", session).lstrip(".") or "session")
        self.path = self.path.with_name(self.path.name + ".jsonl")
        self._file: BinaryIO | None = None

    def __call__(self, record: Record) -> None:
        if self._file is None:  # a session in which nothing was said leaves no file
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
        self._file.write(canonical.encode(log_entry(record)) + b"\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
