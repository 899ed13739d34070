"""Real host processes over HTTP, killed, stopped, cut off and left without a database: every run ends, nothing that was
acknowledged is lost, and nothing that was recorded is done again."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.host.hosts import HostProcess, until
from tests.postgres import Server, new_ledger, new_server, server_address
from tests.runs.documents import edge, node, workflow
from tests.runs.receiver import Receiver, receiving
from tests.wire import Wire, wire

STOPPED_SECONDS = 3.5  # longer than a lease
STEPS = ["before", "send", "after"]
AHEAD = Path(__file__).with_name("an_hour_ahead")


def story(url: str) -> dict[str, Any]:
    wait = {"delayMs": 50}
    nodes = [
        node("before", "core.delay", config=wait),
        node("send", "core.http", config={"url": url, "method": "POST", "body": {"a": 1}}),
        node("after", "core.delay", config=wait),
        node("gate", "core.approvalGate"),
        node("last"),
    ]
    places = [*STEPS, "gate", "last"]
    return workflow("story", nodes, [edge(a, b) for a, b in pairwise(places)])


class Fleet:
    """Hosts on one ledger, and callers who try again where an answer says that they may."""

    def __init__(self, folder: Path, ledgers: list[str], receiver: Receiver, *, ahead: int | None = None) -> None:
        """A host at each of these addresses of one ledger; the clock of number `ahead` is an hour ahead."""
        place = httpx.URL(receiver.url)
        self._egress = ["--allow-egress", f"{place.host}:{place.port}"]
        self._folder, self._ledgers = folder, ledgers
        size = len(ledgers)
        self.hosts = [self._start(number, number, AHEAD if number == ahead else None) for number in range(size)]
        self._made = size
        self.standing = list(range(size))  # whom callers may ask
        self.kills: list[float] = []
        for host in self.hosts:
            assert host.client

    def _start(self, place: int, number: int, packages: Path | None = None) -> HostProcess:
        folder = self._folder / f"host{number}"
        return HostProcess(folder, self._ledgers[place], *self._egress, packages=packages)

    def ask(self, method: str, path: str, body: Any = None, *, key: str = "") -> Any:
        """The answer of a host that stands; asked again where nobody answered or the answer may change."""
        headers = {"Idempotency-Key": key} if key else {}
        end = time.monotonic() + 60
        while time.monotonic() < end:
            host = self.hosts[random.choice(self.standing)]
            try:
                answer = host.client.request(method, path, json=body, headers=headers, timeout=5)
            except httpx.HTTPError:
                continue
            if answer.status_code < 300:
                return answer.json()
            if method == "POST" and answer.status_code in (404, 409) and "interrupts" in path:
                return None  # an earlier try was heard
            assert answer.status_code in (409, 429, 500, 502, 503, 504), answer.text
            time.sleep(0.05)
        raise AssertionError(f"nobody answers {path}")

    def carry(self, number: int) -> str:
        """Start a run, answer its question, and wait for its end; its id."""
        run_id = str(self.ask("POST", "/v1/runs", {"workflowId": "story"}, key=f"run-{number}")["runId"])
        until(lambda: self.ask("GET", f"/v1/runs/{run_id}")["status"] == "waiting-approval", 60)
        self.ask("POST", f"/v1/runs/{run_id}/interrupts/gate", {"resumeValue": {"action": "accept"}})
        until(lambda: self.ask("GET", f"/v1/runs/{run_id}")["status"] == "completed", 60)
        return run_id

    # Faults

    def kill(self, place: int) -> None:
        """A host dies, and another takes its place."""
        self.standing.remove(place)
        self.kills.append(time.time() * 1000)
        self.hosts[place].kill()
        self.hosts[place].close()
        self.hosts[place] = self._start(place, self._made)
        self._made += 1
        assert self.hosts[place].client
        self.standing.append(place)

    def stop(self, place: int) -> None:
        self.standing.remove(place)
        self.hosts[place].process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        self.hosts[place].process.send_signal(signal.SIGCONT)
        self.standing.append(place)

    def part(self, places: list[int], line: Wire) -> None:
        """Hosts and the database do not reach each other, and come together again."""
        self.standing = [place for place in self.standing if place not in places]
        line.hold()
        time.sleep(STOPPED_SECONDS)
        line.release()
        self.standing += places

    def close(self) -> None:
        for host in self.hosts:
            host.process.send_signal(signal.SIGCONT)
            host.close()


def cut(address: str) -> None:
    """End every connection of every host."""
    with psycopg.connect(address) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'forestay'"
        )


def play(
    folder: Path, ledgers: list[str], count: int, faults: list[Callable[[Fleet], None]], *, ahead: int | None = None
) -> Fleet:
    with receiving() as receiver:
        fleet = Fleet(folder, ledgers, receiver, ahead=ahead)
        try:
            fleet.ask("PUT", "/v1/workflows/story", story(receiver.url))
            with ThreadPoolExecutor(8) as callers:
                ends = [callers.submit(fleet.carry, number) for number in range(count)]
                disturbing = threading.Thread(target=lambda: [fault(fleet) for fault in faults])
                disturbing.start()
                runs = [end.result() for end in ends]
                disturbing.join()
            assert len(set(runs)) == count
            for run_id in runs:
                check(fleet, run_id)
            sent = Counter(got.headers.get("idempotency-key", "") for got in receiver.got)
            assert len(sent) == count, "every run has sent its own"
        finally:
            fleet.close()
    return fleet


def check(fleet: Fleet, run_id: str) -> None:
    events = fleet.ask("GET", f"/v1/runs/{run_id}/events/poll?lastSequence=-1")["events"]
    assert [event["sequence"] for event in events] == list(range(len(events)))
    done = Counter(event.get("nodeId") for event in events if event["type"] == "node.completed")
    assert done == Counter([*STEPS, "gate", "last"]), "each node completes once"
    effects = Counter(event.get("nodeId") for event in events if event["type"] == "forestay.effect.recorded")
    assert all(found == 1 for found in effects.values()), "a recorded effect is not had again"
    assert sum(event["type"] == "interrupt.resolved" for event in events) == 1, "the answer was taken once"


@pytest.mark.sweep  # a caller whose host died is told "in flight" for five seconds
def test_runs_outlive_a_host_that_is_killed_and_connections_that_are_cut(tmp_path: Path) -> None:
    play(tmp_path, [new_ledger()] * 2, 6, [lambda fleet: cut(server_address()), lambda fleet: fleet.kill(0)])


@pytest.mark.sweep
def test_the_whole_matrix_of_faults(tmp_path: Path) -> None:
    """The clock of host 0 is an hour ahead, and it is killed with runs that wait for a moment. Hosts 1 and 3 reach the
    database by a wire of their own."""
    server: Server = new_server()
    with wire(server.address) as line:
        faults: list[Callable[[Fleet], None]] = [
            lambda fleet: fleet.kill(0),
            lambda fleet: fleet.stop(1),
            lambda fleet: cut(server.address),
            lambda fleet: fleet.part([1, 3], line),
            lambda fleet: server.restart(),
            lambda fleet: fleet.kill(2),
            lambda fleet: fleet.stop(3),
            lambda fleet: cut(server.address),
            lambda fleet: fleet.part([1, 3], line),
            lambda fleet: fleet.kill(1),
        ]
        direct = f"{server.address}{'&' if '?' in server.address else '?'}schema=matrix"
        try:
            play(tmp_path, [direct, line.address("matrix")] * 2, 200, faults, ahead=0)
        finally:
            server.stop()


def test_what_a_host_with_a_wrong_clock_left_goes_on_at_its_moment(tmp_path: Path) -> None:
    """The host whose clock is an hour ahead is killed while its run waits for two seconds: the other carries it on, and
    not an hour later."""
    ledger = new_ledger()
    wrong = HostProcess(tmp_path / "wrong", ledger, packages=AHEAD)
    right = HostProcess(tmp_path / "right", ledger)
    try:
        pause = workflow("pause", [node("wait", "core.delay", config={"delayMs": 2000})], [])
        wrong.ask("PUT", "/v1/workflows/pause", pause)
        run_id = wrong.ask("POST", "/v1/runs", {"workflowId": "pause"})["runId"]
        until(lambda: wrong.ask("GET", f"/v1/runs/{run_id}")["status"] != "pending")
        wrong.kill()
        until(lambda: right.ask("GET", f"/v1/runs/{run_id}")["status"] == "completed", 60)
        events = right.ask("GET", f"/v1/runs/{run_id}/events/poll?lastSequence=-1")["events"]
        times = [datetime.fromisoformat(event["timestamp"]).timestamp() for event in events]
        assert abs(times[0] - time.time()) < 1800, "the records bear the database's time"
    finally:
        wrong.close()
        right.close()
