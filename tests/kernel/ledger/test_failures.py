"""L9: a full disk, a read-only file, a lock, a damaged page. A Problem, nothing false acknowledged, reads go on."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from forestay.kernel.ledger import Draft, Ledger
from forestay.kernel.problems import Problem
from tests.kernel.ledger.tampering import unlock

FULL_DISK = """
import asyncio, resource, signal, sys
from forestay.kernel.ledger import Draft, Ledger
from forestay.kernel.problems import Problem

async def main(path):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with Ledger.open(path) as ledger:
        acknowledged, problem = 0, None
        if sys.argv[2] == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
        for _ in range(400):
            try:
                await ledger.append("run/a", [Draft("t", "x" * 5_000)])
                acknowledged += 1
            except Problem as caught:
                problem = caught
                break
        assert problem is not None and problem.key in ("ledger_full", "ledger_io"), problem
        assert len(await ledger.read("run/a")) == acknowledged, "reads go on, and nothing unacknowledged shows"
        if sys.argv[2] == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        else:
            import os
            os.unlink(sys.argv[3])
        await ledger.append("run/a", [Draft("t", "after")])
        verification = await ledger.verify()
        assert verification.ok and verification.records == acknowledged + 1, verification
        print(problem.key, acknowledged)

asyncio.run(main(sys.argv[1]))
"""


def test_a_full_disk_by_file_size_limit(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "l.db"), "limit"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > 10


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_on_a_real_small_file_system(tmp_path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    target = str(tmp_path).encode()
    if libc.mount(b"tmpfs", target, b"tmpfs", 0, b"size=2m") != 0:
        pytest.skip("this system does not let us mount a tmpfs")
    try:
        ballast = tmp_path / "ballast"
        ballast.write_bytes(b"x" * 1_000_000)
        command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "l.db"), "mount", str(ballast)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("ledger_full")
    finally:
        assert libc.umount2(target, 2) == 0


READ_ONLY = """
import asyncio, os, sys, urllib.parse
from forestay.kernel.ledger import Draft, Ledger, sqlite  # before the right to read the library goes
from forestay.kernel.problems import Problem
if os.geteuid() == 0:  # root may write everything; nobody may not
    os.setgid(65534)
    os.setuid(65534)

async def main(path):
    async with Ledger.open(path) as ledger:
        assert ledger.read_only
        try:
            await ledger.append("run/a", [Draft("t", 2)])
        except Problem as problem:
            print(problem.key, len(await ledger.read("run/a")), (await ledger.verify()).ok)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_read_only_file_is_served_and_not_written() -> None:
    folder = Path(tempfile.mkdtemp())
    async with Ledger.open(folder / "l.db") as ledger:
        await ledger.append("run/a", [Draft("t", 1)])
    (folder / "l.db").chmod(0o444)
    folder.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(folder / "l.db")], capture_output=True, text=True)
    shutil.rmtree(folder)
    assert done.stdout.split() == ["ledger_read_only", "1", "True"], done.stderr


async def test_a_locked_file_is_a_problem_and_then_works_again(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db", lock_timeout=0.05) as ledger:
        await ledger.append("run/a", [Draft("t", 1)])
        other = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Problem) as caught:
            await ledger.append("run/a", [Draft("t", 2)])
        assert (caught.value.key, caught.value.row.retryable) == ("ledger_locked", True)
        assert len(await ledger.read("run/a")) == 1
        other.execute("ROLLBACK")
        other.close()
        await ledger.append("run/a", [Draft("t", 3)])
        assert [record.payload for record in await ledger.read("run/a")] == [1, 3]


async def test_two_processes_may_write_one_file_in_turn(tmp_path: Path) -> None:
    async with Ledger.open(tmp_path / "l.db") as one, Ledger.open(tmp_path / "l.db") as two:
        for number in range(10):
            await (one if number % 2 else two).append("run/a", [Draft("t", number)])
        assert (await one.verify()).ok
        assert [record.payload for record in await two.read("run/a")] == list(range(10))


async def test_a_damaged_page_is_a_problem_and_other_streams_are_served(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    async with Ledger.open(path) as ledger:
        for name in ("a", "b"):
            for number in range(60):
                await ledger.append(f"run/{name}", [Draft("t", f"{name}{number}" * 300)])
    data = bytearray(path.read_bytes())
    place = data.index(b"b30b30")
    page = place // 4096 * 4096
    data[page : page + 4096] = os.urandom(4096)
    path.write_bytes(data)
    async with Ledger.open(path) as ledger:
        assert len(await ledger.read("run/a")) == 60
        found = await ledger.verify()
        assert [fault.stream for fault in found.faults] == ["run/b"]
        with pytest.raises(Problem) as caught:
            await ledger.read("run/b")
        assert caught.value.key in ("ledger_corrupt", "chain_broken")
        assert caught.value.exit_code == 11
        assert (await ledger.append("run/a", [Draft("t", "goes on")]))[0].seq == 60


async def test_l9_a_record_that_cannot_be_read_holds_nobody_to_what_was_there_then(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with Ledger.open(path) as ledger:
        await ledger.append("run/a", [Draft("t", number) for number in range(3)])
    with sqlite3.connect(path) as db:
        unlock(db)
        db.execute("UPDATE records SET payload = ? WHERE seq = 1", (b'{"cut',))
    db.close()
    async with Ledger.open(path) as ledger:
        kept = []
        for reading in (ledger.read("run/a"), ledger.read_all("run/a")):
            with pytest.raises(Problem, match="Record 1 of run/a is damaged") as caught:
                await reading
            kept.append(caught)  # with the frames that it went through
        await ledger.append("run/b", [Draft("t", 0)])
        assert [record.payload for record in await ledger.read("run/b")] == [0]


async def test_a_file_that_is_no_ledger_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "l.db").write_bytes(b"not a database, not at all" * 100)
    with pytest.raises(Problem) as caught:
        Ledger.open(tmp_path / "l.db")
    assert caught.value.key == "ledger_corrupt"


async def test_a_ledger_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "l.db").close()
    other = sqlite3.connect(tmp_path / "l.db")
    other.execute("PRAGMA user_version = 999")
    other.close()
    with pytest.raises(Problem) as caught:
        Ledger.open(tmp_path / "l.db")
    assert caught.value.key == "migration_unsupported"


@pytest.mark.parametrize(("place", "key"), [("file/inner", "config_invalid"), ("n" * 300, "config_invalid")])
async def test_a_folder_that_cannot_be_is_a_mistake_of_the_caller(tmp_path: Path, place: str, key: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Problem) as caught:
        async with Ledger.open(tmp_path / place / "l.db"):
            pass
    assert (caught.value.key, caught.value.details["at"]) == (key, str(tmp_path / place))
    assert not caught.value.row.retryable


@pytest.mark.parametrize(
    ("number", "key"), [(errno.ENOSPC, "ledger_full"), (errno.EIO, "ledger_io"), (errno.EACCES, "ledger_read_only")]
)
async def test_a_folder_that_the_disk_or_its_owner_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, key: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(Problem) as caught:
        async with Ledger.open(tmp_path / "new" / "l.db"):
            pass
    assert caught.value.key == key
