"""`python -m tests.security.barrage [COUNT] [SEED]`: hostile requests to a real `forestay up`, over loopback, one after
the other, with the processor time that each takes in the server.

The time is read from the clock of the server's process (Linux). What the server does beside, such as work that an
earlier request began, falls into it too: a request that takes long is sent three times more, and the least counts.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec

from tests.contracts.openwop.conftest import LocalHost
from tests.contracts.openwop.documents import DOCUMENTS
from tests.security.hostile_request import Hostile, Operation, There, operations, requests

DOCUMENTS_AT = {"/v1/openapi.json": "", "/host/v1/openapi.json": "", "/crp/openapi.json": "/crp"}
MOST_CPU_SECONDS = 0.1
PATIENCE_SECONDS = 30.0
_UNDESCRIBED = ("/a2a", "/mcp", "/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/messages")
_PROVIDERS = "POST /crp/sessions/{sessionId}/providers"
_EVENTS = "text/event-stream"


# Answers that a contract asks for: as many sessions are open as may be (CRP 1004), and what says so.
OF_A_CONTRACT = {
    ("POST /crp/sessions", 503),
    ("GET /crp/ready", 503),
    # Addresses beside these belong to a registry of packs, which this host does not have (W15).
    ("GET /v1/packs", 501),
    ("GET /v1/packs/export", 501),
}


class Barrage(msgspec.Struct):
    """What came of the requests."""

    sent: int = 0
    statuses: Counter[int] = msgspec.field(default_factory=Counter)
    operations: set[str] = msgspec.field(default_factory=set)
    failures: list[str] = []  # answers of 5xx, and none
    slow: list[str] = []
    worst_ms: float = 0.0
    cpu_seconds: float = 0.0


class Caller:
    """One connection to the server, opened again when the server closes it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1" and parts.port is not None  # loopback only
        self._place = (parts.hostname, parts.port)
        self.host = f"{parts.hostname}:{parts.port}".encode()
        self._socket: socket.socket | None = None

    def send(self, request: Hostile) -> int:
        """The status of the answer; 0 when the server closed the connection without one."""
        data = request.wire(self.host)
        for fresh in (False, True):
            connection = self._connected(fresh)
            with contextlib.suppress(ConnectionError, BrokenPipeError):
                connection.sendall(data)  # the server may refuse before it has read everything
            with contextlib.suppress(ConnectionError, http.client.BadStatusLine):
                return self._answer(connection, request)
            self.close()
        return 0

    def _connected(self, fresh: bool) -> socket.socket:
        if fresh or self._socket is None:
            self.close()
            self._socket = socket.create_connection(self._place, PATIENCE_SECONDS)
        return self._socket

    def _answer(self, connection: socket.socket, request: Hostile) -> int:
        answer = http.client.HTTPResponse(connection, method=request.method.decode("latin-1"))
        answer.begin()
        streams = (answer.getheader("content-type") or "").startswith(_EVENTS)
        if streams:
            self.close()
            return answer.status
        answer.read()
        if answer.will_close or request.method == b"HEAD":
            self.close()
        return answer.status

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used, from its own clock."""
    return time.clock_gettime((~pid << 3) | 2)


def attack(url: str, pid: int | None, made: Iterator[Hostile], count: int) -> Barrage:
    """Send `count` requests; with `pid`, measure what each takes."""
    found, caller = Barrage(), Caller(url)
    try:
        for request in islice(made, count):
            before = cpu_seconds(pid) if pid is not None else 0.0
            try:
                status = caller.send(request)
            except TimeoutError:
                caller.close()
                status = -1
            found.sent += 1
            found.statuses[status] += 1
            found.operations.add(request.operation)
            if (status >= 500 or status <= 0) and (request.operation, status) not in OF_A_CONTRACT:
                found.failures.append(_told(request, status))
            if pid is not None:
                _weigh(found, caller, request, pid, cpu_seconds(pid) - before)
    finally:
        caller.close()
    return found


def _weigh(found: Barrage, caller: Caller, request: Hostile, pid: int, took: float) -> None:
    found.cpu_seconds += took
    for _ in range(3 if took > MOST_CPU_SECONDS else 0):
        before = cpu_seconds(pid)
        caller.send(request)
        took = min(took, cpu_seconds(pid) - before)
    found.worst_ms = max(found.worst_ms, took * 1000)
    if took > MOST_CPU_SECONDS:
        found.slow.append(f"{took * 1000:.0f} ms: {_told(request, 0)}")


def _told(request: Hostile, status: int) -> str:
    headers = [(name, value[:80]) for name, value in request.headers if name != b"Authorization"]
    what = f"{request.method!r} {request.target[:300]!r} {headers[:8]} {request.body[:300]!r}"
    return f"{status} {what} ({request.operation})"


@contextlib.contextmanager
def target(folder: Path) -> Iterator[tuple[LocalHost, list[Operation], There]]:
    """A host in a process of its own, its operations, and ids of things that are there."""
    host = LocalHost(folder / "data", folder)
    url = host.start()
    try:
        headers = {"Authorization": f"Bearer {host.keys['full']}"}
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as client:
            known = _described(client)
            yield host, known, _there(client, known)
    finally:
        host.stop()


def _described(client: httpx.Client) -> list[Operation]:
    found = {}
    for path, prefix in DOCUMENTS_AT.items():
        for item in operations(client.get(path).json(), prefix):
            found[item.name] = item
    for path in _UNDESCRIBED:
        found[f"POST {path}"] = Operation("POST", path, [], {"type": "object"}, {})
    return list(found.values())


def _there(client: httpx.Client, known: Sequence[Operation]) -> There:
    """Something of most kinds, so that requests reach what works on it; what ends things has its own. A session that is
    told to use a model which does not answer is not asked for answers: that none comes is no fault of the host."""
    document = DOCUMENTS["noop"]
    client.put(f"/v1/workflows/{document['id']}", json=document).raise_for_status()
    run = client.post("/v1/runs", json={"workflowId": document["id"]}).json()["runId"]
    sessions = [client.post("/crp/sessions", json={"app_id": "hostile"}).json()["session_id"] for _ in range(3)]
    common = [run.encode(), b"x", b"_ask", b"1"]
    lost = [*common, sessions[2].encode()]
    ends = {item.name: lost for item in known if item.method == "DELETE" or item.path.endswith(("/close", "/reset"))}
    ids = [*common, document["id"].encode(), sessions[0].encode()]
    return There(ids, {**ends, _PROVIDERS: [*common, sessions[1].encode()]})


def main(arguments: Sequence[str]) -> int:
    count = int(arguments[0]) if arguments else 100_000
    seed = int(arguments[1]) if len(arguments) > 1 else 1
    with tempfile.TemporaryDirectory() as folder, target(Path(folder)) as (host, known, there):
        assert host.process is not None
        key = host.keys["full"].encode()
        found = attack(host.url, host.process.pid, requests(known, there, key, seed), count)
        print(f"{found.sent} requests to {len(found.operations)} operations, seed {seed}: {dict(found.statuses)}")
        print(f"{found.cpu_seconds / found.sent * 1000:.2f} ms of processor time each, {found.worst_ms:.1f} ms at most")
        for line in [*found.failures[:40], *found.slow[:40]]:
            print("  ", line)
    return 1 if found.failures or found.slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
