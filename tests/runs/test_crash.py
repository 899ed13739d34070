"""SIGKILL at every event boundary, a torn write, a full disk: every run ends as without (F2, F3, G3, G4, B1, B2).

`make sweep` goes through every boundary there is; the quick set takes a few of each kind.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.runs.log import Outbox
from forestay.runs.service import projections
from tests.runs import crashing
from tests.runs.crashing import KEY, WANTED, Life
from tests.runs.patient import PatientClock
from tests.runs.receiver import Got, Receiver, receiving
from tests.runs.tables import rebuilt

ROOT = Path(__file__).parents[2]
EFFECTS = {"side.one", "side.two", "retry.only", "effect.one", "effect.two", "item.1", "item.2", "item.3"}
OUTPUTS = {"got": "child", "kids": 2}
DELAYS = (0.0, 1.0, 60.0)
# More than one life has of anything; a sweep stops at the first count that is survived.
MOST = 200
_FRAME = 4096 + 24  # of the write-ahead log
# How a write can be torn: its last byte, half its last page, its last page, its last page and half of that before.
TEARS = {"byte": 1, "half": 2048, "frame": _FRAME, "frames": _FRAME + 2048}
# Of one life and not of another: ids, and what is measured.
_CHANGING = frozenset(
    {"interruptId", "childRunId", "invocationId", "runId", "parent", "dueAt", "durationMs", "decidedAt", "writtenAt"}
)


Story = dict[tuple[str, str], list[str]]


class Lives:
    """The process that has everything loaded and forks a process for each life."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runs.crashing"],
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def live(self, life: Life) -> bool:
        """Whether it lived to the end; False when it was killed at its moment."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(msgspec.json.encode(life).decode() + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        assert code in (0, -9), "the life failed of itself; its traceback is on stderr"
        return code == 0

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    lives = Lives()
    yield lives
    lives.close()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def records(folder: Path) -> list[tuple[str, int, str, str, int, Any, Any]]:
    """(stream, seq, id, type, ts, payload, attrs) of all that is in the log."""
    with sqlite3.connect(folder / "ledger.db") as db:
        rows = db.execute(
            "SELECT s.name, r.seq, r.id, r.type, r.ts, r.payload, r.attrs FROM records r "
            "JOIN streams s ON s.id = r.stream ORDER BY r.pos"
        ).fetchall()
    db.close()
    return [(*row[:5], json.loads(row[5]), json.loads(row[6] or "{}")) for row in rows]


def recorded(folder: Path) -> set[str]:
    """The effects that are on record, by the name they leave in the file; what a map looked at leaves none."""
    results = [item[6]["p"]["result"] for item in records(folder) if item[3] == "forestay.effect.recorded"]
    return {item["v"] if isinstance(item, dict) else item for item in results if not isinstance(item, list)}


def performed(folder: Path) -> Counter[str]:
    file = folder / "performed"
    return Counter(file.read_text().split()) if file.exists() else Counter()


def lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: lasting(item) for key, item in value.items() if key not in _CHANGING}
    return [lasting(item) for item in value] if isinstance(value, list) else value


def story(folder: Path) -> Story:
    """What each node of each workflow went through, without what differs from life to life."""
    names = {item[0]: item[5]["workflowId"] for item in records(folder) if item[3] == "run.started"}
    told: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for stream, _, _, type, _, payload, attrs in records(folder):
        if stream not in names or type == "lease.acquired":
            continue
        told[(names[stream], attrs.get("n", ""))].append(f"{type} {json.dumps(lasting(payload), sort_keys=True)}")
    beside = {key for key in told if key[1] in ("map", "kids") or key[0] == "tiny"}  # run at the same time
    return {key: sorted(lines) if key in beside else lines for key, lines in told.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, lives: Lives, receiver: Receiver) -> Story:
    """The story of a life that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    assert lives.live(Life(str(folder), receiver.url))
    check_outside(folder, Counter(), set(), receiver.take())
    assert performed(folder) == Counter(EFFECTS)
    return story(folder)


def check_outside(folder: Path, before: Counter[str], kept: set[str], got: list[Got], crashes: int = 1) -> None:
    """Effects and webhooks as the world saw them: a crash may repeat what it kept from being recorded, once."""
    after = performed(folder)
    assert set(after) == EFFECTS
    for name in kept:
        assert after[name] == before[name] == 1, f"{name} was on record and was performed again"
    assert all(count <= 1 + crashes for count in after.values()), after
    log = records(folder)
    (webhook,) = {item[0].removeprefix("webhook/") for item in log if item[3] == "webhook.registered"}
    secret = hmac.new(KEY, f"webhook:{webhook}:1".encode(), hashlib.sha256).hexdigest()
    owed = {(item[0], item[1]): item for item in log if item[0].startswith("run/") and item[3] in WANTED}
    came: dict[str, dict[str, Any]] = {}
    for item in got:
        assert item.is_signed_with(secret)
        event = item.document["event"]
        assert came.setdefault(item.delivery, event) == event, "one delivery, one event, however often it comes"
    told = {(f"run/{item['runId']}", item["sequence"]): item for item in came.values()}
    assert told.keys() == owed.keys(), "each event that was asked for, and nothing that is not in the log"
    for place, (_, _, id, type, _, payload, _) in owed.items():
        assert (told[place]["eventId"], told[place]["type"], told[place]["payload"]) == (id, type, payload)
    with sqlite3.connect(folder / "ledger.db") as db:
        assert db.execute("SELECT count(*) FROM webhook_outbox").fetchone() == (0,), "nothing is still owed"
    db.close()


def last_moment(folder: Path) -> int:
    return max((item[4] for item in records(folder)), default=1_767_225_600_000)


def restart(folder: Path, delay: float, receiver: Receiver, graph: int | None = None) -> Any:
    clock = PatientClock(last_moment(folder) + round(delay * 1000))
    life = Life(str(folder), receiver.url, seed=2, graph=graph)
    return clock.run(crashing.live(life, clock, folder))


def check(
    folder: Path, delay: float, receiver: Receiver, before: list[Got], whole: Any, crashes: int = 1, kept: Any = None
) -> None:
    """What was left of a life comes to the same end."""
    done, kept = performed(folder), recorded(folder) if kept is None else kept
    begun, written = last_moment(folder) + round(delay * 1000), len(records(folder))
    run = restart(folder, delay, receiver)
    assert (run.status, run.outputs) == ("completed", OUTPUTS), run.error
    resumed = [item[4] for item in records(folder)[written:] if item[0].startswith("run/")]
    assert not resumed or resumed[0] - begun < 1000, "it went on under a second after the restart"
    check_outside(folder, done, kept, [*before, *receiver.take()], crashes)
    assert story(folder) == whole


def survive(folder: Path, life: Life, lives: Lives, receiver: Receiver, whole: Any, delays: Any, tears: Any) -> bool:
    """Whether the moment came; then the run was taken up after each delay, and after each tear of its last write."""
    folder.mkdir()
    receiver.take()
    if lives.live(life):
        return False
    got = receiver.take()
    for delay in delays:
        for tear in tears:
            copy = folder.with_name(f"{folder.name}-copy")
            shutil.copytree(folder, copy)
            if tear:
                cut(copy / "ledger.db-wal", tear)
            check(copy, delay, receiver, got, whole)
            shutil.rmtree(copy)
    shutil.rmtree(folder)
    return True


def cut(log: Path, size: int) -> None:
    with log.open("r+b") as file:
        file.truncate(max(0, log.stat().st_size - size))


@pytest.mark.parametrize(("moment", "count"), [("within", 5), ("committed", 4), ("told", 9), ("within", 40)])
def test_a_run_survives_sigkill_at_a_sample_of_boundaries(
    tmp_path: Path, lives: Lives, receiver: Receiver, whole: Any, moment: str, count: int
) -> None:
    life = Life(str(tmp_path / "a"), receiver.url, moment, count)
    assert survive(tmp_path / "a", life, lives, receiver, whole, (1.0,), (0,))


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_last_write_loses_only_what_it_tore(
    tmp_path: Path, lives: Lives, receiver: Receiver, whole: Any, tear: str
) -> None:
    life = Life(str(tmp_path / "a"), receiver.url, "committed", 8)
    assert survive(tmp_path / "a", life, lives, receiver, whole, (1.0,), (TEARS[tear],))


@pytest.mark.parametrize("graph", [None, 3, 11])
def test_l6_tables_that_are_built_again_after_a_crash_are_those_that_grew(
    tmp_path: Path, lives: Lives, receiver: Receiver, graph: int | None
) -> None:
    for count in (4, 9, 16):
        folder = tmp_path / str(count)
        folder.mkdir()
        lives.live(Life(str(folder), receiver.url, "told", count, graph=graph))
        check_tables(folder)
    receiver.take()


def check_tables(folder: Path) -> None:
    grown, built = rebuilt(folder / "ledger.db", [*projections(), Outbox()])
    assert grown["runs"] and grown["webhook_types"]
    assert built == grown


@pytest.mark.parametrize("moment", ["space", "limit"])
def test_a_full_disk_delays_a_run_and_does_not_change_it(
    tmp_path: Path, lives: Lives, receiver: Receiver, whole: Any, moment: str
) -> None:
    assert fill(tmp_path / "a", lives, receiver, whole, moment, 7)


def fill(folder: Path, lives: Lives, receiver: Receiver, whole: Any, moment: str, count: int) -> bool:
    """Whether the disk was full at that commit; then the run ended as with room."""
    folder.mkdir()
    receiver.take()
    assert lives.live(Life(str(folder), receiver.url, moment, count)), "a full disk kills nobody"
    if (folder / "no-mount").exists():
        pytest.skip("this user may not mount a file system; the `limit` test fills the disk another way")
    got = receiver.take()
    check_outside(folder, Counter(), set(), got)
    assert story(folder) == whole
    refused = (folder / "refused").read_text().split() if (folder / "refused").exists() else []
    assert not refused or set(refused) == {"SQLITE_FULL" if moment == "space" else "SQLITE_IOERR_WRITE"}
    shutil.rmtree(folder)
    return bool(refused)


@pytest.mark.sweep
@pytest.mark.parametrize("first", [1, 2, 3, 4])
@pytest.mark.parametrize("moment", ["within", "committed", "told"])
def test_a_run_survives_sigkill_at_every_boundary(
    tmp_path: Path, lives: Lives, receiver: Receiver, whole: Any, moment: str, first: int
) -> None:
    """Every fourth boundary from `first` on; the four of them are all."""
    for count in range(first, MOST, 4):
        folder = tmp_path / f"{moment}{count}"
        life = Life(str(folder), receiver.url, moment, count)
        if not survive(folder, life, lives, receiver, whole, DELAYS, (0,)):
            break
    assert count > (60 if moment == "within" else 25), "there are more boundaries than that"


@pytest.mark.sweep
@pytest.mark.parametrize("tear", TEARS)
def test_a_run_survives_a_torn_write_at_every_commit(
    tmp_path: Path, lives: Lives, receiver: Receiver, whole: Any, tear: str
) -> None:
    for count in range(1, MOST):
        folder = tmp_path / f"{tear}{count}"
        life = Life(str(folder), receiver.url, "committed", count)
        if not survive(folder, life, lives, receiver, whole, DELAYS, (TEARS[tear],)):
            break
    assert count > 25


@pytest.mark.sweep
@pytest.mark.parametrize("moment", ["space", "limit"])
def test_a_run_survives_a_full_disk_at_every_commit(
    tmp_path: Path, lives: Lives, receiver: Receiver, whole: Any, moment: str
) -> None:
    for count in range(1, MOST):
        if not fill(tmp_path / f"{moment}{count}", lives, receiver, whole, moment, count):
            break
    assert count > 25


@pytest.mark.sweep
@pytest.mark.parametrize("again", [1, 2, 3])
def test_a_run_survives_a_second_sigkill_while_it_recovers(
    tmp_path: Path, lives: Lives, receiver: Receiver, whole: Any, again: int
) -> None:
    """After each commit of the first life; the second dies at the `again`th commit of its own."""
    for count in range(1, MOST):
        folder = tmp_path / f"{again}-{count}"
        folder.mkdir()
        receiver.take()
        if lives.live(Life(str(folder), receiver.url, "told", count)):
            break
        kept, done = recorded(folder), performed(folder)
        second = Life(str(folder), receiver.url, "committed", again, 3, last_moment(folder) + 1000, recovers=True)
        ended = lives.live(second)
        got = receiver.take()
        assert all(performed(folder)[name] == done[name] == 1 for name in kept), "the second life did it again"
        if ended:  # there was less left to do
            check_outside(folder, done, kept, got)
        else:
            check(folder, 1.0, receiver, got, whole, 2, kept)
        shutil.rmtree(folder)
    assert count > 25


@pytest.mark.parametrize("moment", ["space", "limit"])
def test_a_disk_that_is_full_while_a_run_recovers_changes_nothing(
    tmp_path: Path, lives: Lives, receiver: Receiver, whole: Any, moment: str
) -> None:
    assert recover_on_a_full_disk(tmp_path / "a", lives, receiver, whole, moment, 12)


@pytest.mark.sweep
@pytest.mark.parametrize("moment", ["space", "limit"])
def test_a_disk_that_is_full_while_a_run_recovers_changes_nothing_at_any_commit(
    tmp_path: Path, lives: Lives, receiver: Receiver, whole: Any, moment: str
) -> None:
    refused = 0
    for count in range(1, MOST):
        found = recover_on_a_full_disk(tmp_path / f"{moment}{count}", lives, receiver, whole, moment, count)
        if found is None:
            break
        refused += found
    assert refused > 25


def recover_on_a_full_disk(
    folder: Path, lives: Lives, receiver: Receiver, whole: Any, moment: str, count: int
) -> bool | None:
    """The first life is killed at that commit, the next one has no room for the first thing it writes. Whether there
    was something left to write; None when the first life lived on."""
    folder.mkdir()
    receiver.take()
    if lives.live(Life(str(folder), receiver.url, "told", count)):
        return None
    kept, done = recorded(folder), performed(folder)
    start = last_moment(folder) + 1000
    assert lives.live(Life(str(folder), receiver.url, moment, 1, 3, start, recovers=True)), "a full disk kills nobody"
    if (folder / "no-mount").exists():
        pytest.skip("this user may not mount a file system; the `limit` test fills the disk another way")
    check_outside(folder, done, kept, receiver.take(), crashes=2)
    assert story(folder) == whole
    refused = (folder / "refused").exists()
    shutil.rmtree(folder)
    return refused


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(4))
def test_random_graphs_survive_sigkill_at_every_commit(
    tmp_path: Path, lives: Lives, receiver: Receiver, part: int
) -> None:
    """Twenty graphs that loop: whatever is in them, in whatever order, a crash changes nothing."""
    for graph in range(part, 20, 4):
        folder = tmp_path / f"{graph}"
        folder.mkdir()
        assert lives.live(Life(str(folder), receiver.url, graph=graph))
        expected, effects = _beside(story(folder)), performed(folder)
        shutil.rmtree(folder)
        for count in range(1, MOST):
            folder.mkdir()
            if lives.live(Life(str(folder), receiver.url, "told", count, graph=graph)):
                break
            check_tables(folder)
            kept = recorded(folder)
            run = restart(folder, 1.0, receiver, graph)
            assert run.status == "completed", (graph, count, run.error)
            assert _beside(story(folder)) == expected, (graph, count)
            after = performed(folder)
            assert after.keys() == effects.keys(), (graph, count)
            assert sum((after - effects).values()) <= 4, (graph, count, "what ran at the moment, and nothing else")
            assert kept <= after.keys()
            shutil.rmtree(folder)
        shutil.rmtree(folder)
        receiver.take()


def _beside(told: Story) -> Story:
    """Branches run beside each other: each node's own lines, in any order."""
    return {key: sorted(lines) for key, lines in told.items()}
