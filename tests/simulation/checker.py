"""What must hold when a simulation is over, read from the files that are left.

- V1  Nothing that was acknowledged is lost: runs, events that were shown, answers that were taken, ends that were told.
- V2  Nothing happens twice: one key makes one run, one run begins and ends once, and an effect that is on record is
      not performed again (the outside complains about that while it happens).
- V3  Every run ends, and ends as its workflow says.
- V4  Every chain verifies, and every table says what the log says.
- V5  Tenants never mix: neither in what clients see nor in what receivers get.
- V6  Every event that a receiver asked for has come, as the log has it.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from forestay.kernel import Projection
from forestay.runs import TERMINAL_EVENTS
from tests.kernel.ledger.left_behind import chains, rebuilt_tables
from tests.simulation import errands
from tests.simulation.clients import Client, Promise
from tests.simulation.outside import Outside
from tests.simulation.workload import WANTED

_FORK = "f"  # the attribute of a fork's first record that says what it is a fork of


class Line(NamedTuple):
    """A record of a run."""

    seq: int
    id: str
    type: str
    payload: Any
    private: Any


class Log:
    """The runs that a file holds."""

    def __init__(self, path: Path) -> None:
        self.runs: defaultdict[str, list[Line]] = defaultdict(list)
        self.forks: dict[str, str] = {}  # the run that a fork was made of
        with closing(sqlite3.connect(path)) as db:
            rows = db.execute(
                "SELECT s.name, r.seq, r.id, r.type, r.payload, r.attrs FROM records r "
                "JOIN streams s ON s.id = r.stream WHERE s.name LIKE 'run/%' ORDER BY r.pos"
            )
            for name, seq, id, type, payload, attrs in rows:
                known = json.loads(attrs or "{}")
                private = known.get("p")
                if seq == 0 and _FORK in known:
                    self.forks[name.removeprefix("run/")] = known[_FORK]["source"]
                self.runs[name.removeprefix("run/")].append(Line(seq, id, type, json.loads(payload), private))
            self.status = dict(db.execute("SELECT run_id, status FROM runs").fetchall())
            self.tenant = dict(db.execute("SELECT run_id, tenant FROM runs").fetchall())
            self.owed = db.execute("SELECT count(*) FROM webhook_outbox").fetchone()[0]

    def effects(self) -> Iterator[tuple[str, Any]]:
        """The identity of each effect on record, and its result."""
        for lines in self.runs.values():
            for line in lines:
                if line.type == "forestay.effect.recorded":
                    yield line.payload["invocationId"], line.private["result"]


def check(path: Path, clients: Sequence[Client], outside: Outside, projections: Sequence[Projection]) -> list[str]:
    """Everything that does not hold."""
    log = Log(path)
    promises = [promise for client in clients for promise in client.promises]
    with closing(sqlite3.connect(path)) as db:
        made = list(errands.check(db, [errand for client in clients for errand in client.errands]))
    return [
        *made,
        *_promises(log, promises),
        *_runs(log),
        *_effects(log, outside),
        *_webhooks(log, outside),
        *chains(path),
        *rebuilt_tables(path, projections),
    ]


def _promises(log: Log, promises: Sequence[Promise]) -> Iterator[str]:
    for promise in promises:
        if len(promise.run_ids) != 1:
            yield f"V2 {promise.mark}: one key made {len(promise.run_ids)} runs"
            continue
        lines = log.runs.get(promise.run_id)
        if lines is None:
            yield f"V1 {promise.mark}: the run {promise.run_id} was acknowledged and is not there"
            continue
        if log.tenant.get(promise.run_id) != promise.tenant:
            yield f"V5 {promise.mark}: the run belongs to {log.tenant.get(promise.run_id)}"
        ids = {line.seq: line.id for line in lines}
        for seq, id in promise.seen.items():
            if ids.get(seq) != id:
                yield f"V1 {promise.mark}: the event {seq} was shown as {id} and is {ids.get(seq)}"
        if log.status[promise.run_id] != promise.standing:
            yield f"V1 {promise.mark}: it was told to be {promise.standing} and is {log.status[promise.run_id]}"
        if promise.accepted and not any(line.type == "interrupt.resolved" for line in lines):
            yield f"V1 {promise.mark}: an answer was taken and is not in the log"
        signals = [line.type for line in lines].count("forestay.signal.received")
        if signals != promise.signalled and (promise.signalled or signals > 1):
            yield f"V2 {promise.mark}: one signal was sent, {signals} were received"
        forks = list(log.forks.values()).count(promise.run_id)
        if forks != promise.forked:
            yield f"V2 {promise.mark}: it was forked {int(promise.forked)} times, and there are {forks} forks"
        yield from _end(promise, lines[-1])


def _end(promise: Promise, last: Line) -> Iterator[str]:
    """V3: a run that was not cancelled is completed, with outputs that its own effects gave; unless its model failed,
    whose failure is final."""
    if last.type == "run.cancelled":
        return
    if last.type == "run.failed" and last.payload["error"]["code"] == "provider_error":
        return
    if promise.standing != "completed":
        yield f"V3 {promise.mark}: it ended as {promise.standing}"
    elif promise.workflow != "forestay-ask":
        outputs = promise.outputs or {}
        if outputs.get("mark") != promise.mark or outputs.get("count", 2) != 2:
            yield f"V3 {promise.mark}: its outputs are {outputs}"


def _runs(log: Log) -> Iterator[str]:
    roots: Counter[str] = Counter()
    for run_id, lines in log.runs.items():
        types = [line.type for line in lines]
        ends = [at for at, type in enumerate(types) if type in TERMINAL_EVENTS]
        if len(ends) != 1:
            yield f"V3 {run_id} has {len(ends)} ends: {types[-5:]}"
        if types.count("run.started") != 1 or types[0] != "run.started":
            yield f"V2 {run_id} begins with {types[:2]}, {types.count('run.started')} times"
        recorded = Counter(line.payload["invocationId"] for line in lines if line.type == "forestay.effect.recorded")
        yield from (f"V2 {run_id} has the effect {name} {count} times" for name, count in recorded.items() if count > 1)
        mark = lines[0].payload["inputs"].get("mark") or lines[0].payload["inputs"].get("question")
        if run_id not in log.forks and lines[0].payload.get("parentRunId") is None and "/kid-" not in str(mark):
            roots[str(mark)] += 1
    yield from (f"V2 {mark} has {count} runs" for mark, count in roots.items() if count > 1)


def _effects(log: Log, outside: Outside) -> Iterator[str]:
    """What is on record is what the outside answered to that very effect."""
    for identity, result in log.effects():
        if isinstance(result, dict) and isinstance(result.get("body"), dict) and "receipt" in result["body"]:
            receipt = result["body"]["receipt"]
            if receipt not in outside.receipts[identity]:
                yield f"V1 the effect {identity} has a receipt that the shop did not give for it: {receipt}"


def _webhooks(log: Log, outside: Outside) -> Iterator[str]:
    if log.owed:
        yield f"V6 {log.owed} deliveries are still owed"
    came: set[tuple[str, int]] = set()
    first: dict[str, str] = {}
    for tenant, delivery, event in outside.webhooks:
        run_id, seq = event["runId"], event["sequence"]
        came.add((run_id, seq))
        if log.tenant.get(run_id) != tenant:
            yield f"V5 {tenant} got an event of {log.tenant.get(run_id)}"
        if first.setdefault(delivery, event["eventId"]) != event["eventId"]:
            yield f"V6 the delivery {delivery} brought two events"
        lines = log.runs.get(run_id, [])
        if seq >= len(lines) or lines[seq].id != event["eventId"]:
            yield f"V6 {run_id}: the event {seq} was delivered and is not in the log"
    for run_id, lines in log.runs.items():
        for line in lines:
            if line.type in WANTED and run_id not in log.forks and (run_id, line.seq) not in came:
                yield f"V6 {run_id}: {line.type} ({line.seq}) was never delivered"
