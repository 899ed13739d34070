"""Evidence: what every extension asked for, what was decided, how it ended (Pi §3.1, §3.4).

Invariants:

- E1  A call's records stand in the ledger stream of its extension, in the order in which things happened.
- E2  Parameters appear only as the hash of their canonical JSON; everything else is redacted.
- E3  Writing does not hold up a call, but when evidence can no longer be written, no further call is made.
- E4  The log file is a projection: its lines are made from records that are on disk.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.kernel import canonical
from holdfast.kernel.clock import iso
from holdfast.kernel.ledger import Append, Draft, Ledger, Record
from holdfast.kernel.problems import Problem
from holdfast.kernel.redact import redact, redact_text

SCHEMA = "pi.ext.log.v1"
Level = Literal["debug", "info", "warn", "error"]
_UNSAFE = re.compile(r"[^A-Za-z0-9._:@~/-]")
_MESSAGES = {
    "host_call.start": "host call dispatched",
    "host_call.end": "host call completed",
    "policy.decision": "policy decided",
    "capability.resolve": "Resolved effective capabilities",
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
    """Writes the records of extensions: at once for the caller, in order for the ledger."""

    def __init__(self, ledger: Ledger, *, sink: Callable[[Record], None] | None = None) -> None:
        self._ledger = ledger
        self._sink = sink
        self._lock = threading.Lock()
        self._last: Future[list[Record]] | None = None
        self._failure: BaseException | None = None

    def write(self, correlation: Correlation, *events: Event) -> None:
        """Submit events together (E3); raises when an earlier write has failed."""
        if self._failure is not None:
            raise Problem("ledger_io", "Evidence cannot be written; no further call is made.") from self._failure
        shared = msgspec.to_builtins(correlation)
        drafts = [Draft(event.name, event.data, {**shared, **event.ids, "level": event.level}) for event in events]
        with self._lock:  # one order for the ledger and for `flush`
            future = self._ledger.submit(Append(stream_of(correlation.extension_id), drafts))
            self._last = future
        future.add_done_callback(self._written)

    def _written(self, future: Future[list[Record]]) -> None:
        error = future.exception()
        if error is not None:
            self._failure = error
        elif self._sink is not None:
            for record in future.result():
                self._sink(record)

    def flush(self) -> None:
        """Wait until everything submitted is on disk."""
        with self._lock:
            last = self._last
        if last is not None:
            last.exception()
        if self._failure is not None:
            raise Problem("ledger_io", "Some evidence could not be written.") from self._failure


class Event(msgspec.Struct, frozen=True):
    """One entry before it has its place: a stable name and data that may be written down (E2)."""

    name: str
    data: dict[str, Any]
    ids: dict[str, Any] = msgspec.field(default_factory=dict)
    level: Level = "info"


def params_hash(method: str, params: Mapping[str, Any]) -> str:
    """sha256 hex over the canonical JSON of `{"method", "params"}` (§3.4)."""
    return hashlib.sha256(canonical.encode({"method": method, "params": params})).hexdigest()


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
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / (re.sub(r"[^A-Za-z0-9._-]", "_", session).lstrip(".") or "session")
        self.path = self.path.with_name(self.path.name + ".jsonl")
        self._file = self.path.open("ab")

    def __call__(self, record: Record) -> None:
        self._file.write(canonical.encode(log_entry(record)) + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
