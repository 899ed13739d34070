"""The host of a soak as a process: `forestay up` on a folder, stopped or killed and restarted on the same port."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.host import cpu
from benchmarks.http import KEY
from benchmarks.soak.verdict import Restart, Sample

_FORESTAY = [sys.executable, "-P", "-m", "forestay.cli.main"]
_PATIENCE = 120
_MIB = 1024 * 1024


class Served:
    """One host over several lives. `address` stays the same in all of them."""

    def __init__(self, folder: Path) -> None:
        self.life = 0
        self.restarts: list[Restart] = []
        self._folder = folder
        self._spent = 0.0  # processor time of the lives that have ended
        self._process, self.address = self._started(0)

    def _started(self, port: int) -> tuple[subprocess.Popen[bytes], tuple[str, int]]:
        process = subprocess.Popen(
            [*_FORESTAY, "up", "--port", str(port), "--trust", "--json"],
            cwd=self._folder,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        parts = urlsplit(json.loads(process.stdout.readline())["result"]["url"])
        return process, (str(parts.hostname), int(parts.port or 0))

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._spent += cpu(self._process.pid)
        self._process.send_signal(how)
        self._process.wait(_PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    async def restart(self, how: signal.Signals) -> None:
        """End this life and begin the next one; in between, clients get no answer."""
        at = time.perf_counter()
        await asyncio.to_thread(self.stop, how)
        self._process, _ = await asyncio.to_thread(self._started, self.address[1])
        self.life += 1
        self.restarts.append(Restart(at, how.name, time.perf_counter() - at))

    def spent(self) -> float:
        """Return the processor seconds of all lives."""
        return self._spent + cpu(self._process.pid)

    def sample(self) -> Sample | None:
        """Measure the process and its files now; None between two lives."""
        process = Path(f"/proc/{self._process.pid}")
        try:
            fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
            resident, private = (int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))
            files = sum(1 for _ in (process / "fd").iterdir())
        except (OSError, KeyError):
            return None
        return Sample(time.perf_counter(), resident, private, files, self.life, *_sizes(self._folder))

    def verified(self) -> tuple[bool, int]:
        """Return whether `ledger verify` succeeds, and the number of records."""
        done = subprocess.run(
            [*_FORESTAY, "ledger", "verify", "--json"],
            cwd=self._folder,
            env=_environment(),
            capture_output=True,
            text=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout or "{}")
        result = answer.get("result") or {}
        return done.returncode == 0 and bool(answer.get("success")), int(result.get("records", 0))


def _sizes(folder: Path) -> tuple[float, float, float]:
    """Return the MiB of the ledger, of its write-ahead log, and of everything else under the folder."""
    ledger = log = other = 0
    for path in folder.rglob("*"):
        try:
            size = path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # the file has just disappeared
        if path.name == "ledger.db":
            ledger += size
        elif path.name == "ledger.db-wal":
            log += size
        else:
            other += size
    return ledger / _MIB, log / _MIB, other / _MIB


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
    return {**kept, "FORESTAY_API_KEY": KEY, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
