"""Real host processes that share one ledger on PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.forked import PIPE, Forked

KEY = "hk_test_0123456789abcdef0123456789abcdef"
SECRET = "a secret of hosts on several machines"


class HostProcess:
    """One host, and a client of it. `packages` is a folder with another forestay than this one."""

    def __init__(
        self, folder: Path, ledger: str, *options: str, command: str = "up", packages: Path | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        port = ["--port", "0"] if command == "up" else []
        line = [command, *port, "--json", "--database", ledger, *options]
        environment = {**os.environ, "FORESTAY_API_KEY": KEY, "FORESTAY_SECRET": SECRET, "HOME": str(folder)}
        self.process = _started(folder, line, environment, packages)
        self._client: httpx.Client | None = None
        self._said: dict[str, Any] | None = None

    @property
    def said(self) -> dict[str, Any]:
        """What the host says when it is ready."""
        if self._said is None:
            assert self.process.stdout is not None and self.process.stderr is not None
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            self._said = json.loads(line)["result"]
            assert self._said, line
        return self._said

    @property
    def client(self) -> httpx.Client:
        if self._client is None:
            headers = {"Authorization": f"Bearer {KEY}"}
            self._client = httpx.Client(base_url=self.said["url"], headers=headers, timeout=30)
        return self._client

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = self.client.request(method, path, json=body, **options)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Have it drain; its exit code."""
        self.process.terminate()
        return self.process.wait(60)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self.process.kill()
        self.process.communicate()


def _started(
    folder: Path, line: list[str], environment: dict[str, str], packages: Path | None
) -> Forked | subprocess.Popen[bytes]:
    if packages is None:
        return Forked(folder, *line, environ=environment, stderr=PIPE)
    command = [sys.executable, "-P", "-m", "forestay", *line]
    environment = {**environment, "PYTHONPATH": str(packages)}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=PIPE, stderr=PIPE)


@contextmanager
def hosts(folder: Path, ledger: str, count: int, *options: str) -> Iterator[list[HostProcess]]:
    """So many hosts, which are started at once."""
    made = [HostProcess(folder / f"host{number}", ledger, *options) for number in range(count)]
    try:
        for host in made:
            assert host.client.base_url  # made here, before threads use it
        yield made
    finally:
        for host in made:
            host.close()


def until(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What `holds` gives when that is something; a host of its own process keeps its own time."""
    end = time.monotonic() + seconds
    while True:
        if found := holds():
            return found
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
