"""O1 to O3: a data folder has one host at a time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forestay.host import Host
from forestay.host.sole import sole_host
from forestay.kernel import Config, ManualClock, Problem
from forestay.runs import CreateRun
from tests.runs.documents import node, workflow

ROOT = Path(__file__).parents[2]
HOLDER = """
import asyncio, sys
from pathlib import Path
from forestay.host.sole import sole_host

async def main():
    async with sole_host(Path(sys.argv[1])):
        print("mine", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_o1_a_second_host_is_refused_and_the_first_goes_on(tmp_path: Path, clock: ManualClock) -> None:
    options = {"root": tmp_path, "data": tmp_path / "data", "clock": clock}
    async with Host.open(Config(), **options) as host:
        await host.runs.put_workflow(workflow("w", [node("n", "core.noop")]), tenant=None)
        with pytest.raises(Problem, match=f"process {os.getpid()}") as refused:
            async with Host.open(Config(), **options):
                pass
        assert refused.value.key == "state_conflict" and refused.value.details["fix"]
        await asyncio.sleep(60)  # a lease and more
        run = await host.runs.create_run(CreateRun(workflow_id="w"), "default")
        assert (await host.runs.wait(run.run_id, "default")).status == "completed"
    async with Host.open(Config(), **options) as host:
        assert (await host.runs.get_run(run.run_id, "default")).status == "completed"


def test_o2_a_killed_host_leaves_nothing_to_clear(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"mine\n"

    async def take() -> None:
        async with sole_host(tmp_path):
            pass

    with pytest.raises(Problem, match=f"process {holder.pid}"):
        ManualClock().run(take())
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    ManualClock().run(take())


async def test_o3_hosts_that_are_open_for_a_moment_wait_for_each_other(tmp_path: Path) -> None:
    order: list[str] = []

    async def moment(name: str) -> None:
        async with sole_host(tmp_path):
            order.append(name)
            await asyncio.sleep(1)
            order.append(name)

    await asyncio.gather(moment("a"), moment("b"), moment("c"))
    assert order[::2] == order[1::2] and sorted(order[::2]) == ["a", "b", "c"]
