"""A simulated day keeps what it promises, and a check of it that finds nothing could have found something."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.soak.day import report
from benchmarks.soak.verdict import Restart, faults

from tests.simulation import day_check
from tests.simulation.day import QUARTER, live


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


def test_part_of_a_day_with_every_kind_of_restart() -> None:
    """Sparse, so that it costs little: what a day adds is time, in which timers, schedules and notes end."""
    soak, found = live(1.5, every=150.0)
    assert found.faults == []
    assert [item.error for item in soak.done if item.error] == []
    assert [away.how for away in soak.restarts] == ["asked", "killed", "power cut"]
    assert len(soak.done) == 36 and found.timers == 4 and found.moments >= 2 * (17 + 1)
    assert len(soak.samples) == 6 and soak.samples[-1].at == pytest.approx(6 * QUARTER, abs=5)
    assert not [fault for fault in faults(soak) if fault[:2] in ("S1", "S4", "S5", "S6")]
    assert any("ledger" in line for line in report(soak, found, 1.0))


@pytest.mark.sweep
def test_a_whole_day() -> None:
    soak, found = live(12.0)
    assert found.faults == []
    assert [fault for fault in faults(soak) if not fault.startswith("S3")] == []


def ledger(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            """
            CREATE TABLE runs (run_id TEXT, workflow_id TEXT, status TEXT, created INT, ended INT);
            CREATE TABLE webhook_outbox (id TEXT);
            CREATE TABLE memory_entries (id TEXT);
            CREATE TABLE streams (id INT, name TEXT);
            CREATE TABLE records (pos INT, stream INT, seq INT, type TEXT, payload TEXT);
            """
        )
        for statement in statements:
            db.execute(statement)
        db.commit()
    return path


FIRED = "INSERT INTO records VALUES ({0}, 1, {0}, 'schedule.fired', '{{\"scheduledFor\": {1}}}')"
START = day_check.START_MS


@pytest.mark.parametrize(
    ("statements", "fault"),
    [
        ([], None),
        (["INSERT INTO runs VALUES ('r', 'quick', 'failed', 0, 1)"], "D1"),
        (["INSERT INTO webhook_outbox VALUES ('d')"], "D1"),
        (["INSERT INTO streams VALUES (1, 'run/r')", "INSERT INTO records VALUES (1, 1, 4, 'run.failed', '{}')"], "D2"),
        (["INSERT INTO streams VALUES (1, 'run/k')", "INSERT INTO records VALUES (1, 1, 4, 'run.failed', '{}')"], None),
        (["INSERT INTO streams VALUES (1, 's')", *(FIRED.format(n, 300 * n) for n in range(4))], None),
        (["INSERT INTO streams VALUES (1, 's')", *(FIRED.format(n, 300 * n) for n in (0, 1, 3))], "D3"),
        (["INSERT INTO streams VALUES (1, 's')", *(FIRED.format(n, 300 * n // 2) for n in (0, 2, 3, 4))], "D3"),
        ([f"INSERT INTO runs VALUES ('r', 'patient-1', 'completed', {START}, {START} + 60100)"], None),
        ([f"INSERT INTO runs VALUES ('r', 'patient-1', 'completed', {START}, {START} + 59900)"], "D4"),
        ([f"INSERT INTO runs VALUES ('r', 'patient-1', 'completed', {START}, {START} + 63000)"], "D4"),
        ([f"INSERT INTO runs VALUES ('r', 'patient-7', 'completed', {START}, {START} + 430000)"], None),
        ([f"INSERT INTO runs VALUES ('r', 'patient-7', 'completed', {START} - 2000, {START} + 430000)"], None),
        ([f"INSERT INTO runs VALUES ('r', 'patient-7', 'completed', {START} - 4000, {START} + 430000)"], "D4"),
        (["INSERT INTO memory_entries VALUES ('m')"], "D6"),
    ],
)
def test_what_a_day_may_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: list[str], fault: str | None
) -> None:
    monkeypatch.setattr(day_check, "chains", lambda path: [])
    monkeypatch.setattr(day_check, "rebuilt_tables", lambda path, projections: [])
    (tmp_path / "outside.txt").write_text("hook acme k 4\neffect a body\neffect a body\n")
    away = [Restart(419.0, "killed", 10.0)]
    found = day_check.check(ledger(tmp_path / "ledger.db", *statements), tmp_path / "outside.txt", away)
    assert [text[:2] for text in found.faults] == ([] if fault is None else [fault])


def test_one_identity_has_one_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_check, "chains", lambda path: [])
    monkeypatch.setattr(day_check, "rebuilt_tables", lambda path, projections: [])
    (tmp_path / "outside.txt").write_text("effect a body\neffect a another\n")
    found = day_check.check(ledger(tmp_path / "ledger.db"), tmp_path / "outside.txt", [])
    assert [text[:2] for text in found.faults] == ["D5"]
