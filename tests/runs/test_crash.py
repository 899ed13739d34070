"""SIGKILL around every append, a full disk, a torn write: every run ends as without (F2, F3, G3, G4)."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.runs import crashing
from tests.runs.patient import CountedLedger, PatientClock

ROOT = Path(__file__).parents[2]
EFFECTS = {"side.one", "side.two", "retry.only", "effect.one", "effect.two", "item.1", "item.2", "item.3"}
# More than one life of the workflow appends; the exhaustive sweep stops at the first count that is survived.
MOST = 60


def kill(folder: Path, moment: str, count: int) -> bool:
    """Run the process until it kills itself; False when it ended before."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runs.crashing", str(folder), moment, str(count)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": ""},
        capture_output=True,
        timeout=60,
        check=False,
    )
    if done.returncode == -9:
        return True
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return False


def recorded(folder: Path) -> set[str]:
    """The effects that are on record, by the name they leave in the file."""
    with sqlite3.connect(folder / "ledger.db") as db:
        rows = db.execute(
            "SELECT json_extract(attrs, '$.p.result') FROM records WHERE type = 'holdfast.effect.recorded'"
        ).fetchall()
        last = db.execute("SELECT coalesce(max(ts), 0) FROM records").fetchone()[0]
    db.close()
    found = set()
    for (text,) in rows:
        name = text.partition('"v":"')[2].rstrip('"}') if text.startswith("{") else text
        found.add(name)
    (folder / "last").write_text(str(last))
    return found


def performed(folder: Path) -> Counter[str]:
    file = folder / "performed"
    return Counter(file.read_text().split()) if file.exists() else Counter()


def restart(folder: Path, delay: float) -> Any:
    last = int((folder / "last").read_text()) or 1_767_225_600_000
    clock = PatientClock(last + round(delay * 1000))
    return clock.run(crashing.live(folder, clock, 2))


def check(folder: Path, before: Counter[str], kept: set[str], delay: float) -> None:
    run = restart(folder, delay)
    assert run.status == "completed", run.error
    assert run.outputs == {"got": "child", "kids": 2}
    after = performed(folder)
    assert set(after) == EFFECTS
    for name in kept:
        assert after[name] == before[name] == 1, f"{name} was on record and was performed again"
    assert all(count <= 2 for count in after.values())


def survive(folder: Path, moment: str, count: int, delays: tuple[float, ...]) -> bool:
    folder.mkdir()
    if not kill(folder, moment, count):
        return False
    before, kept = performed(folder), recorded(folder)
    for index, delay in enumerate(delays):
        copy = folder.with_name(f"{folder.name}-{index}")
        shutil.copytree(folder, copy)
        check(copy, before, kept, delay)
        shutil.rmtree(copy)
    shutil.rmtree(folder)
    return True


def test_without_a_crash_each_effect_is_performed_once(tmp_path: Path) -> None:
    (tmp_path / "last").write_text("0")
    run = restart(tmp_path, 0)
    assert run.status == "completed"
    assert performed(tmp_path) == Counter(EFFECTS)


@pytest.mark.parametrize(("moment", "count"), [("after", 1), ("before", 6), ("after", 9), ("before", 14)])
def test_a_run_survives_sigkill_at_a_sample_of_appends(tmp_path: Path, moment: str, count: int) -> None:
    assert survive(tmp_path / "a", moment, count, (1.0,))


@pytest.mark.sweep
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_survives_sigkill_at_every_append(tmp_path: Path, moment: str) -> None:
    count = 1
    while survive(tmp_path / f"{moment}{count}", moment, count, (0.0, 1.0, 60.0)):
        count += 1
        assert count < MOST
    assert count > 15, "the workflow appends more often than that"


@pytest.mark.parametrize("cut", [1, 100, 5000])
def test_a_torn_last_write_loses_only_what_it_tore(tmp_path: Path, cut: int) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    assert kill(folder, "after", 8)
    log = folder / "ledger.db-wal"
    assert log.stat().st_size > cut
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - cut)
    kept = recorded(folder)
    before = performed(folder)
    check(folder, before, kept, 1.0)


class FullDisk(CountedLedger):
    """A disk that is really full for one append: SQLite is given no page beyond those it has."""

    left = -1

    async def commit(self, *appends: Any) -> Any:
        FullDisk.left -= any(item.stream.startswith("run/") for item in appends)
        if FullDisk.left == 0:
            FullDisk.left = -1
            await asyncio.wrap_future(self._write(lambda tx: tx.execute("PRAGMA max_page_count = 1").fetchall()))
            big = "x" * 200_000
            first = appends[0]
            draft = type(first.drafts[0])("filler", {"x": big})
            return await super().commit(type(first)("filler/1", [draft]), *appends)
        return await super().commit(*appends)


@pytest.mark.parametrize("count", range(2, 20, 3))
def test_a_full_disk_delays_a_run_and_does_not_change_it(tmp_path: Path, count: int) -> None:
    FullDisk.left = count
    clock = PatientClock()
    run = clock.run(crashing.live(tmp_path, clock, 3, FullDisk))
    assert FullDisk.left < 0, "the disk was full once"
    assert run.status == "completed"
    assert run.outputs == {"got": "child", "kids": 2}
    counts = performed(tmp_path)
    assert set(counts) == EFFECTS
    assert all(count <= 2 for count in counts.values())
