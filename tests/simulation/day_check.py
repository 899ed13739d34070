"""What must be left when a simulated day is over.

- D1  Every run has completed, and no delivery is owed.
- D2  Every event that a receiver asked for has come.
- D3  Every moment of a schedule started one run, restarts or not.
- D4  No timer ends early, nor more than `LATE_SECONDS` late; while the host was away it could not.
- D5  One identity, one effect.
- D6  What had a time to live is gone.
- D7  Every chain verifies, and every table says what the log says.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.soak.verdict import Restart

from tests.kernel.ledger.left_behind import chains, rebuilt_tables
from tests.simulation.machine import START_MS
from tests.simulation.workload import WANTED
from tests.simulation.world import PROJECTIONS

LATE_SECONDS = 2.0


class Found(NamedTuple):
    records: int
    faults: list[str]
    runs: int
    timers: int
    latest_ms: int
    moments: int
    delivered: int


def check(path: Path, notebook: Path, restarts: Sequence[Restart]) -> Found:
    hooks, effects = set[tuple[str, int]](), dict[str, set[str]]()
    for line in notebook.read_text("utf-8").splitlines():
        what, first, rest = line.split(" ", 2)
        if what == "hook":
            run_id, seq = rest.split(" ")
            hooks.add((run_id, int(seq)))
        else:
            effects.setdefault(first, set()).add(rest)
    with closing(sqlite3.connect(path)) as db:
        late = list(_lateness(db, restarts))
        faults = [
            *chains(path),
            *rebuilt_tables(path, PROJECTIONS),
            *_open(db),
            *_undelivered(db, hooks),
            *_schedules(db),
            *(f"D4 {run_id} ended {ms} ms after its time" for run_id, ms in late if not 0 <= ms <= LATE_SECONDS * 1000),
            *(
                f"D5 the identity {name} had {len(bodies)} effects"
                for name, bodies in effects.items()
                if len(bodies) > 1
            ),
        ]
        (records,) = db.execute("SELECT count(*) FROM records").fetchone()
        (runs,) = db.execute("SELECT count(*) FROM runs").fetchone()
        (moments,) = db.execute("SELECT count(*) FROM records WHERE type = 'schedule.fired'").fetchone()
    latest = max((ms for _, ms in late), default=0)
    return Found(records, faults, runs, len(late), latest, moments, len(hooks))


def _open(db: sqlite3.Connection) -> Iterator[str]:
    for run_id, status in db.execute("SELECT run_id, status FROM runs WHERE status <> 'completed'"):
        yield f"D1 {run_id} is {status}"
    (owed,) = db.execute("SELECT count(*) FROM webhook_outbox").fetchone()
    if owed:
        yield f"D1 {owed} deliveries are owed"
    (notes,) = db.execute("SELECT count(*) FROM memory_entries").fetchone()
    if notes:
        yield f"D6 {notes} notes outlived their time"


def _undelivered(db: sqlite3.Connection, hooks: set[tuple[str, int]]) -> Iterator[str]:
    marks = ",".join("?" * len(WANTED))
    rows = db.execute(
        f"SELECT s.name, r.seq FROM records r JOIN streams s ON s.id = r.stream WHERE r.type IN ({marks})", WANTED
    )
    for name, seq in rows:
        if name.startswith("run/") and (name.removeprefix("run/"), seq) not in hooks:
            yield f"D2 {name} {seq} was never delivered"


def _schedules(db: sqlite3.Connection) -> Iterator[str]:
    """The moments of each schedule lie at one distance, from the first to the last."""
    rows = db.execute(
        "SELECT s.name, r.payload FROM records r JOIN streams s ON s.id = r.stream "
        "WHERE r.type = 'schedule.fired' ORDER BY r.pos"
    )
    moments: dict[str, list[int]] = {}
    for name, payload in rows:
        moments.setdefault(name, []).append(json.loads(payload)["scheduledFor"])
    for name, found in moments.items():
        distance = found[1] - found[0] if len(found) > 1 else 0
        if any(after - before != distance for before, after in itertools.pairwise(found)):
            yield f"D3 the moments of {name} are not at one distance"


def _lateness(db: sqlite3.Connection, restarts: Sequence[Restart]) -> Iterator[tuple[str, int]]:
    """Each timer and the milliseconds between its time and its end. When there was no host at its time, or it went
    before the timer would have been late, it is late from the moment on at which there was one again."""
    rows = db.execute("SELECT run_id, workflow_id, created, ended FROM runs WHERE workflow_id LIKE 'patient-%'")
    ends = [(away.at - LATE_SECONDS, away.at + away.seconds) for away in restarts]
    gaps = [tuple(START_MS + round(at * 1000) for at in both) for both in ends]
    for run_id, workflow, created, ended in rows:
        due = created + int(workflow.removeprefix("patient-")) * 60_000
        back = next((up for down, up in gaps if down <= due <= up), due)
        end = ended or 0
        yield run_id, end - due if end < due else max(0, end - back)
