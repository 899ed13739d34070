"""A rolling upgrade, played: hosts of two versions on one ledger, the tables changed between them, and callers all the
while who never try twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

import forestay
from forestay.host import host_tables
from forestay.kernel import Ledger
from forestay.surface import KeyTable
from tests.host.hosts import HostProcess, until
from tests.postgres import new_ledger
from tests.runs.documents import edge, node, workflow

STEPS = ["one", "rest", "two", "sleep", "three"]
CALLERS = 4
RUNS_BETWEEN = 12


def steps() -> dict[str, Any]:
    wait = {"delayMs": 40}
    waits = ("rest", "sleep")
    nodes = [node(name, "core.delay", config=wait) if name in waits else node(name) for name in STEPS]
    return workflow("steps", nodes, [edge(a, b) for a, b in pairwise(STEPS)])


def newer(folder: Path) -> Path:
    """The next forestay: this one with a further file of the schema, and with a column more in the table of runs."""
    package = folder / "forestay"
    shutil.copytree(Path(forestay.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    migrations = package / "kernel" / "ledger" / "migrations" / "postgres"
    number = len(list(migrations.iterdir())) + 1
    (migrations / f"{number:04}_notes.sql").write_text("ALTER TABLE workers ADD COLUMN note TEXT NOT NULL DEFAULT '';")
    version = "    version = 5\n"
    _change(package / "runs" / "log.py", version, "    version = 6\n    since = 5\n")
    _change(package / "runs" / "log.py", "asks BIGINT NOT NULL\n", "asks BIGINT NOT NULL, rank BIGINT DEFAULT 0\n")
    _change(package / "__init__.py", f'"{forestay.__version__}"', '"9.9.9"')
    return folder


def _change(file: Path, before: str, after: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(before) == 1, (file, before)
    file.write_text(text.replace(before, after), "utf-8")


class Proxy:
    """What stands before the hosts: whom callers may ask. Who is taken out gets no further requests."""

    def __init__(self) -> None:
        self._hosts: list[HostProcess] = []
        self._asking: Counter[HostProcess] = Counter()
        self._turn = 0
        self._changed = threading.Condition()

    def add(self, host: HostProcess) -> None:
        assert host.client
        with self._changed:
            self._hosts.append(host)

    def take_out(self, host: HostProcess) -> None:
        with self._changed:
            self._hosts.remove(host)
            assert self._changed.wait_for(lambda: not self._asking[host], 30)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        with self._changed:
            self._turn += 1
            host = self._hosts[self._turn % len(self._hosts)]
            self._asking[host] += 1
        try:
            return host.ask(method, path, body)
        finally:
            with self._changed:
                self._asking[host] -= 1
                self._changed.notify_all()


class Callers:
    """Start runs and look at what they started, one after the other, until they are told to stop."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.started: list[str] = []
        self.failed: list[BaseException] = []
        self._stop = threading.Event()

    def _call(self) -> None:
        try:
            while not self._stop.is_set():
                made = self._proxy.ask("POST", "/v1/runs", {"workflowId": "steps"})["runId"]
                self.started.append(made)
                self._proxy.ask("GET", f"/v1/runs/{made}")
                self._proxy.ask("GET", "/v1/runs?limit=5")
        except BaseException as error:
            self.failed.append(error)

    def go_on(self) -> None:
        """Wait until each of them has started some more."""
        goal = len(self.started) + RUNS_BETWEEN
        until(lambda: self.failed or len(self.started) >= goal, 60)
        assert not self.failed, self.failed

    @contextmanager
    def calling(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()


def command(folder: Path, packages: Path | None, *words: str) -> Any:
    environment = {"HOME": str(folder), "PATH": "", **({"PYTHONPATH": str(packages)} if packages else {})}
    line = [sys.executable, "-P", "-m", "forestay", *words, "--json"]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["result"]


def versions(folder: Path, ledger: str) -> set[str]:
    found = command(folder, None, "fleet", "--database", ledger)["workers"]
    return {worker["about"]["version"] for worker in found if worker["alive"]}


def replace(proxy: Proxy, old: HostProcess, new: HostProcess) -> None:
    proxy.add(new)
    proxy.take_out(old)
    assert old.end() == 0


@pytest.mark.sweep
def test_hosts_are_replaced_one_by_one_while_callers_go_on(tmp_path: Path) -> None:
    ledger, packages = new_ledger(), newer(tmp_path / "newer")
    hosts: list[HostProcess] = []

    def start(packages: Path | None = None) -> HostProcess:
        hosts.append(HostProcess(tmp_path / f"host{len(hosts)}", ledger, packages=packages))
        return hosts[-1]

    proxy = Proxy()
    callers = Callers(proxy)
    try:
        first, second = start(), start()
        first.ask("PUT", "/v1/workflows/steps", steps())
        proxy.add(first)
        proxy.add(second)
        with callers.calling():
            callers.go_on()
            migrated = command(tmp_path, packages, "migrate", "--database", ledger)["found"]
            assert migrated["tables"] == ["runs"] and migrated["needed"] == migrated["schema"] + 1
            callers.go_on()  # hosts of the version before, on tables of the new one
            third = start(packages)
            replace(proxy, first, third)
            callers.go_on()  # one of each
            assert versions(tmp_path, ledger) == {forestay.__version__, "9.9.9"}
            back = start()  # a host of the version before starts beside them: the upgrade can be taken back
            replace(proxy, second, back)
            callers.go_on()
            replace(proxy, back, start(packages))
            callers.go_on()
        last = hosts[-1]
        ended = {run: until(lambda run=run: _ended(last, run), 60) for run in callers.started}
        assert set(ended.values()) == {"completed"} and len(ended) == len(callers.started)
        for run in callers.started:
            events = last.ask("GET", f"/v1/runs/{run}/events/poll?lastSequence=-1")["events"]
            done = Counter(event["nodeId"] for event in events if event["type"] == "node.completed")
            assert done == Counter(STEPS), run
        assert [host.end() for host in (third, last)] == [0, 0]
    finally:
        for host in hosts:
            host.close()
    check_tables(ledger)


def _ended(host: HostProcess, run: str) -> str | None:
    status: str = host.ask("GET", f"/v1/runs/{run}")["status"]
    return status if status in ("completed", "failed", "cancelled") else None


def check_tables(ledger: str) -> None:
    """What both versions kept is what the records say: built again, the table of runs is the same (L6)."""
    server, _, schema = ledger.rpartition("schema=")
    question = f"SELECT run_id, status, ended, busy, wake, asks FROM {schema}.runs ORDER BY run_id"
    with psycopg.connect(server.rstrip("?&"), autocommit=True) as connection:
        kept = connection.execute(question.encode()).fetchall()
        connection.execute(f"DELETE FROM {schema}.projections".encode())
        Ledger.open(ledger, projections=[*host_tables(), KeyTable()]).close()
        assert kept and connection.execute(question.encode()).fetchall() == kept
