"""The cost of one agent turn: processor time, commits, records and bytes of the ledger."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import msgspec

from forestay.host import Host
from forestay.kernel import Agents, Config, Models, Record
from forestay.models import Script, Scripted, ScriptedCall, Turn
from forestay.runs import CreateRun

_CLIENTS = 8
_WARM = 16
_RUNS = 240
_LONG = "The Aurora lies at berth 7 and sails on Thursday with the evening tide. " * 60
_READ = Turn("", (ScriptedCall("read", {"path": "note.md"}),))


class Cost(msgspec.Struct, frozen=True):
    """The average of one run; `copies` counts the records that have the whole answer."""

    milliseconds: float
    commits: float
    records: float
    bytes: float
    copies: float
    rate: float


async def cost(*turns: Turn, runs: int = _RUNS) -> Cost:
    """Measure runs of one agent by eight clients at once; the commits are those of a single run alone."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "note.md").write_text("The Aurora lies at berth 7.\n")
        config = Config(models=Models(default="script"), agents=Agents(allow=["*"], context=[]))
        models = {"script": Scripted(Script(turns, position="conversation"))}
        async with Host.open(config, root=root, models=models) as host:

            async def one() -> None:
                request = CreateRun(workflow_id="forestay-ask", inputs={"question": "Where?"})
                run_id = (await host.runs.create_run(request, "default")).run_id
                async for _ in host.runs.follow(run_id, "default"):
                    pass

            async def client(count: int) -> None:
                for _ in range(count):
                    await one()

            await client(_WARM)
            before = await host.ledger.position()
            began, used = time.perf_counter(), time.process_time()
            await asyncio.gather(*(client(runs // _CLIENTS) for _ in range(_CLIENTS)))
            used, spent = time.process_time() - used, time.perf_counter() - began
            found = [record for _, record in await host.ledger.read_all("", before, 100 * runs)]
            commits = await _commits(host, client)
    sizes = [len(msgspec.json.encode([record.payload, record.attrs])) for record in found]
    copies = sum(turns[-1].text in _texts(record) for record in found)
    return Cost(
        1000 * used / runs, commits, len(found) / runs, sum(sizes) / runs, copies / runs, runs / spent
    )  # fmt: skip


async def _commits(host: Host, client) -> float:  # type: ignore[no-untyped-def]
    seen: list[int] = []
    host.ledger.observe(lambda records, seconds: seen.append(len(records)))
    await client(_WARM)
    return len(seen) / _WARM


def _texts(record: Record) -> str:
    return msgspec.json.encode([record.payload, record.attrs]).decode()


def run() -> list[tuple[str, str, str]]:
    """(what, figure, note) for the benchmark report."""
    rows = []
    for what, turns in (
        ("one answer", (Turn("Berth 7 it is."),)),
        ("a tool call and two answers", (_READ, Turn("Berth 7 it is."))),
        ("one answer of 4 KB", (Turn(_LONG),)),
    ):
        found = asyncio.run(cost(*turns))
        note = (
            f"{found.commits:.1f} commits, {found.records:.0f} records, {found.bytes:,.0f} bytes, the whole answer in "
            f"{found.copies:.0f} records; {found.rate:.0f} runs/s with {_CLIENTS} clients"
        )
        rows.append((f"agent run, {what}", f"{found.milliseconds:.2f} ms of processor", note))
    return rows


if __name__ == "__main__":
    for what, figure, note in run():
        print(f"{what:42} {figure:26} {note}")
