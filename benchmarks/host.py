"""The whole host: its time to open and to answer, and its agent turns per second."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from forestay.host import Host
from forestay.kernel import Agents, Config, Models
from forestay.models import Script, Scripted, ScriptedCall, Turn
from forestay.runs import CreateRun

_UP = "import sys; from forestay.cli.main import main; sys.exit(main())"
_KEY = "a-key-for-the-benchmark"
_SECONDS = 3.0


def first_answer(idle: float = 0.0) -> tuple[float, int, float]:
    """Return the seconds from starting `forestay up` to its first answer, the resident KiB after it, and the share of a
    core that it uses during `idle` seconds without requests."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "FORESTAY_API_KEY": _KEY, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        began = time.perf_counter()
        command = [sys.executable, "-c", _UP, "up", "--port", "0", "--json"]
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["result"]["url"]
        request = urllib.request.Request(f"{url}/v1/runs", headers={"Authorization": f"Bearer {_KEY}"})
        urllib.request.urlopen(request).read()
        spent = time.perf_counter() - began
        status = Path(f"/proc/{process.pid}/status")
        resident = int(status.read_text().split("VmRSS:")[1].split()[0]) if status.exists() else 0
        used = cpu(process.pid)
        time.sleep(idle)
        used = (cpu(process.pid) - used) / idle if idle else 0.0
        process.terminate()
        process.wait()
    return spent, resident, used


def cpu(pid: int) -> float:
    """Return a process's processor seconds; 0 if the system does not tell them."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def turns(clients: int, script: Script) -> tuple[float, float]:
    """Return the agent runs per second with `clients` clients, and the median milliseconds of one, end to end."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "note.md").write_text("The Aurora lies at berth 7.\n")
        config = Config(models=Models(default="script"), agents=Agents(allow=["*"], context=[]))
        models = {"script": Scripted(script)}
        async with Host.open(config, root=root, models=models) as host:
            spent: list[float] = []
            until = time.perf_counter() + _SECONDS

            async def client() -> None:
                while time.perf_counter() < until:
                    began = time.perf_counter()
                    request = CreateRun(workflow_id="forestay-ask", inputs={"question": "Where?"})
                    run_id = (await host.runs.create_run(request, "default")).run_id
                    async for _ in host.runs.follow(run_id, "default"):
                        pass
                    spent.append(time.perf_counter() - began)

            began = time.perf_counter()
            await asyncio.gather(*(client() for _ in range(clients)))
            rate = len(spent) / (time.perf_counter() - began)
    return rate, statistics.median(spent) * 1000


def run() -> list[tuple[str, str, str]]:
    """(what, figure, note) for the benchmark report."""
    starts = [first_answer(idle) for idle in (0.0, 0.0, 10.0)]
    rows = [
        ("`forestay up` to its first answer", f"{statistics.median(item[0] for item in starts):.2f} s", "median of 3"),
        ("resident memory after it", f"{starts[-1][1] / 1024:.0f} MiB", "no extension loaded"),
        ("processor while idle", f"{starts[-1][2]:.1%} of a core", "over 10 s, after the first answer"),
    ]
    plain = Script((Turn("Berth 7."),), position="conversation")
    reading = Script(
        (Turn("", (ScriptedCall("read", {"path": "note.md"}),)), Turn("Berth 7.")), position="conversation"
    )
    for script, label in ((plain, "agent run, one answer"), (reading, "agent run, a tool call and two answers")):
        for clients in (1, 8):
            rate, median = asyncio.run(turns(clients, script))
            note = f"p50 {median:.0f} ms; scripted model, relay, policy, evidence, synchronous=FULL"
            rows.append((f"{label}, {clients} client(s)", f"{rate:.0f} runs/s", note))
    return rows


if __name__ == "__main__":
    for what, figure, note in run():
        print(f"{what:50} {figure:20} {note}")
