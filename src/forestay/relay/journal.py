"""How a session writes: a record first, then what follows from it: the state it folds to, the counts, the table.

O2  What changes the state is a record first; when writing fails, the state is read again before it is used again.
O5  Of several processes, one at a time writes a session. Each reads what the others wrote before it writes or answers.

The counts are what a relay did since it was opened. A registry of `prometheus_client` takes them as they are:
`registry.register(relay.meters)`. Labels are words of the code, never text of a caller. prometheus_client is imported
when the metrics are first read. The ledger keeps the table of sessions, in the transaction of the record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from forestay.kernel import Append, Draft, Record, Transaction
from forestay.relay.drift import gate
from forestay.relay.facts import Batch
from forestay.relay.warm import Contradiction, Warm

if TYPE_CHECKING:
    from forestay.relay.relay import Relay


Write = Callable[[Append], Awaitable[object]]
"""Writes an append to disk, alone or together with the caller's own records, and then returns."""


class Journal:
    """The stream of one session and the warm state that is its fold.

    `write` is the ledger's commit, or that of a caller who commits the session's records together with its own.
    """

    def __init__(self, relay: Relay, session_id: str, warm: Warm, head: int) -> None:
        self.relay = relay
        self.id = session_id
        self.warm = warm
        self.write: Write = relay.ledger.commit
        self._head = head
        self._staged: list[Draft] = []
        self._stale = False

    @property
    def stream_name(self) -> str:
        return f"relay/{self.id}"

    @property
    def head(self) -> int:
        """The last record that the warm state has folded in and that is written."""
        return self._head

    def rests(self) -> bool:
        """Whether the warm state is what the written records fold to, and no dispatch is under way."""
        return not self._staged and not self._stale and self.warm.dispatch is None

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """No other process writes this session while the block runs (O5)."""
        async with self.relay.locks.at(self.stream_name, self.catch_up):
            yield

    async def catch_up(self) -> None:
        """Fold in what other processes wrote; what this one has begun to write is its own turn."""
        if self._staged or self._stale:
            return
        for record in await self.relay.ledger.read(self.stream_name, self._head + 1):
            if record.seq == self._head + 1 and not self._staged:  # else another task folded it meanwhile
                self.warm.apply(record.type, record.payload)
                self._head = record.seq

    def stage(self, *drafts: Draft) -> None:
        """Fold drafts in now and write them with the next `flush`."""
        for draft in drafts:
            self.warm.apply(draft.type, draft.payload)
            self._staged.append(draft)

    async def flush(self) -> None:
        """Write what is staged, in one append."""
        drafts, self._staged = self._staged, []
        if not drafts:
            return
        try:
            await self.write(Append(self.stream_name, drafts, self._head))
        except BaseException:
            self._stale = True
            raise
        self._head += len(drafts)
        self.relay.meters.count(drafts)

    def give(self, *drafts: Draft) -> Append:
        """What is staged and `drafts`, for the caller to commit. When that fails, the caller drops the session."""
        staged, self._staged = (*self._staged, *drafts), []
        given = Append(self.stream_name, staged, self._head)
        self._head += len(staged)
        self.relay.meters.count(staged)
        return given

    async def record(self, *drafts: Draft) -> None:
        async with self.alone():
            await self.refresh()
            self.stage(*drafts)
            await self.flush()

    def stage_facts(self, batches: Iterable[Batch]) -> None:
        """Facts, each batch with what is odd about it (CRP §1.5)."""
        for batch in batches:
            odd = gate(batch, self.warm.rates)
            self.stage(Draft("crp.extraction.complete", batch))
            if odd is not None:
                self.stage(Draft("crp.extraction.quality_gate", odd))

    async def refresh(self) -> None:
        """Read the state again when a write failed (O2)."""
        if self._stale:
            self.warm, self._head = await self.relay.fold(self.id)
            self._stale = False

    def settle_contradictions(self) -> list[Contradiction]:
        """Mark what was corrected: the older fact is superseded, and stays (C16)."""
        found = self.warm.open_contradictions
        if found:
            pairs = [[item.old, item.new] for item in found]
            self.stage(Draft("crp.extraction.contradiction", {"pairs": pairs}))
            self.stage(Draft("crp.facts.superseded", {"pairs": pairs}))
        return found


class SessionsTable:
    """Which sessions are open, since when and how far: for limits per app and for lists."""

    name = "relay_sessions"
    version = 2
    prefix = "relay/"
    schema = (
        "CREATE TABLE relay_sessions (id TEXT PRIMARY KEY, app TEXT NOT NULL, role TEXT NOT NULL, "
        "created_ms BIGINT NOT NULL, expires_ms BIGINT NOT NULL, closed BIGINT NOT NULL DEFAULT 0, "
        "windows BIGINT NOT NULL DEFAULT 0, facts BIGINT NOT NULL DEFAULT 0, "
        "input_tokens BIGINT NOT NULL DEFAULT 0, output_tokens BIGINT NOT NULL DEFAULT 0, "
        "max_windows BIGINT, max_input BIGINT, max_output BIGINT);"
        "CREATE INDEX relay_sessions_app ON relay_sessions (app, closed);"
    )

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            self._take(tx, record)

    def _take(self, tx: Transaction, record: Record) -> None:
        session = record.stream.removeprefix("relay/")
        payload = record.payload
        match record.type:
            case "crp.extraction.complete":
                rows = payload["rows"] if isinstance(payload, dict) else payload.rows
                tx.execute("UPDATE relay_sessions SET facts = facts + ? WHERE id = ?", (len(rows), session))
            case "crp.window.complete":
                tx.execute(
                    "UPDATE relay_sessions SET windows = windows + 1, input_tokens = input_tokens + ?, "
                    "output_tokens = output_tokens + ? WHERE id = ?",
                    (payload["input_tokens"], payload["output_tokens"], session),
                )
            case "crp.session.init":
                tx.execute(
                    "INSERT INTO relay_sessions (id, app, role, created_ms, expires_ms, max_windows, max_input, "
                    "max_output) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        session,
                        payload["app_id"],
                        payload["role"],
                        payload["created_ms"],
                        payload["expires_ms"],
                        *_caps(payload["config"]),
                    ),
                )
            case "crp.session.configure":
                tx.execute(
                    "UPDATE relay_sessions SET expires_ms = ?, max_windows = ?, max_input = ?, max_output = ? "
                    "WHERE id = ?",
                    (payload["expires_ms"], *_caps(payload["config"]), session),
                )
            case "crp.session.reset":
                tx.execute(
                    "UPDATE relay_sessions SET windows = 0, facts = 0, input_tokens = 0, output_tokens = 0 "
                    "WHERE id = ?",
                    (session,),
                )
            case "crp.session.close":
                tx.execute("UPDATE relay_sessions SET closed = 1 WHERE id = ?", (session,))
            case _:
                pass


def _caps(config: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """What the session may use altogether: windows, input tokens, output tokens; None where nothing limits."""
    return (
        config.get("max_windows_per_session") or config.get("max_windows"),
        config.get("max_total_input_tokens"),
        config.get("max_total_output_tokens"),
    )


# The counts

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

# Name, what it counts, and its label, if it has one.
COUNTERS: dict[str, tuple[str, str | None]] = {
    "crp_dispatches": ("Dispatches that ended, by outcome: complete, or the number of the CRP error.", "outcome"),
    "crp_windows": ("Windows completed, by whether they went on with a text.", "kind"),
    "crp_tokens": ("Tokens of completed windows.", "direction"),
    "crp_facts_extracted": ("Facts kept, by where they came from.", "source"),
    "crp_ingests": ("Texts taken in.", None),
    "crp_ingest_bytes": ("Bytes of the texts taken in.", None),
    "crp_echo_characters": ("Characters removed where windows join.", None),
    "crp_regroundings": ("Windows that got a new envelope because their chain had drifted.", None),
    "crp_facts_superseded": ("Facts that a newer one corrected.", None),
    "crp_facts_compacted": ("Facts that left the hot part of an index.", None),
    "crp_quality_gates": ("Extractions that were unlike the others.", None),
    "crp_security_events": ("Refusals and findings, by kind.", "kind"),
    "crp_sessions_opened": ("Sessions opened.", None),
}
HISTOGRAMS = {
    "crp_dispatch_seconds": "From the start of a dispatch to its end, the model's time included.",
    "crp_envelope_seconds": "Ranking and packing for one window.",
}


class Meters:
    """Counters and histograms of one relay; a collector in the sense of `prometheus_client`."""

    def __init__(self, loaded: Callable[[], tuple[int, int]] = lambda: (0, 0)) -> None:
        self._loaded = loaded
        self._counts: Counter[tuple[str, str]] = Counter()
        self._seconds = {name: _Seconds() for name in HISTOGRAMS}

    def count(self, drafts: Iterable[Draft]) -> None:
        """Count what was written."""
        for draft in drafts:
            for name, label, amount in _counted(draft.type, draft.payload):
                self._counts[name, label] += amount

    def took(self, name: str, seconds: float) -> None:
        self._seconds[name].add(seconds)

    def value(self, name: str, label: str = "") -> int:
        return self._counts[name, label]

    def collect(self) -> Iterator[Any]:
        """The families, for a registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for name, (text, label) in COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=[label] if label else None)
            known = {key: count for (own, key), count in self._counts.items() if own == name}
            for key, count in sorted(known.items() if label else [("", known.get("", 0))]):
                family.add_metric([key] if label else [], count)
            yield family
        for name, text in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(name, text)
            histogram.add_metric([], *self._seconds[name].shown())
            yield histogram
        sessions, facts = self._loaded()
        yield GaugeMetricFamily("crp_sessions_loaded", "Sessions in memory.", sessions)
        yield GaugeMetricFamily("crp_facts_loaded", "Facts in memory.", facts)


class _Seconds:
    def __init__(self) -> None:
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        self._buckets[bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds

    def shown(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative buckets and the sum."""
        total, found = 0, []
        for edge, count in zip((*map(str, BUCKETS), "+Inf"), self._buckets, strict=True):
            total += count
            found.append((edge, float(total)))
        return found, self._sum


def _counted(type: str, payload: Any) -> Iterator[tuple[str, str, int]]:
    """What one record adds to which counter."""
    match type.removeprefix("crp."):
        case "window.complete":
            yield "crp_windows", "continuation" if payload["continuation"] else "first", 1
            yield "crp_tokens", "input", payload["input_tokens"]
            yield "crp_tokens", "output", payload["output_tokens"]
            yield "crp_echo_characters", "", payload["removed"]
        case "extraction.complete":
            batch: Batch = payload
            kind = batch.source.partition(":")[0]
            yield "crp_facts_extracted", kind, len(batch.rows)
        case "ingest.complete":
            yield "crp_ingests", "", 1
            yield "crp_ingest_bytes", "", payload["bytes"]
        case "dispatch.complete":
            yield "crp_dispatches", "complete", 1
        case "dispatch.error":
            yield "crp_dispatches", str(payload["code"]), 1
        case "dispatch.continuation":
            yield "crp_regroundings", "", int(payload["reground"])
        case "facts.superseded":
            yield "crp_facts_superseded", "", len(payload["pairs"])
        case "facts.compacted":
            yield "crp_facts_compacted", "", len(payload["folded"]) + len(payload["archived"])
        case "extraction.quality_gate":
            yield "crp_quality_gates", "", 1
        case "session.init":
            yield "crp_sessions_opened", "", 1
        case name if name.startswith("security."):
            yield "crp_security_events", name.removeprefix("security."), 1
        case _:
            pass
