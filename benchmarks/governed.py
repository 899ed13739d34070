"""The cost of governance: an agent's turn with and without it, an evaluation of 1,000 tasks, a roster of 10,000."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.measure import duration, percentile
from forestay.governance import Credential, Secret
from forestay.host import Host, Options
from forestay.kernel import Agents, Budgets, Ceiling, Config, Models, Price
from forestay.models import Script, Scripted, ScriptedCall, Turn
from forestay.runs import CreateRun
from forestay.surface import InnerTransport, serve_here

_TENANT, _AGENT = "default", "vendor.acme.tide"
_WARM = 40
_TURNS = 8
_ROUNDS = 40
_TASKS = 1000
_MEMBERS = 10_000
_PAGE = 100
_BUDGET = {"maxTokens": 1_000_000, "maxToolCalls": 50, "maxCostUsd": 50}


def _pack(**fields: Any) -> dict[str, Any]:
    manifest = {"agentId": _AGENT, "persona": "Tide", "modelClass": "general", "systemPrompt": "Tell the tide."}
    return {"name": "vendor.acme", "version": "1.0.0", "agents": [{**manifest, **fields}]}


async def _tide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nLow.")
    await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def _host(governed: bool) -> AsyncIterator[tuple[Host, CreateRun]]:
    """Open a host for runs of one turn: the agent fetches a page over HTTP, then answers. Governed, the agent is the
    run's root, remembers, has its own budget beside two of the host, and the page needs a credential."""
    server = await asyncio.start_server(_tide, "127.0.0.1", 0)
    place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    asked = {"url": f"http://{place}/tide", **({"credential": "tide"} if governed else {})}
    script = Script((Turn("", (ScriptedCall("fetch", asked),)), Turn("Low.")), position="conversation")
    ceilings = [Ceiling("project", per="day", max_tokens=10**9), Ceiling("agent", per="run", max_tool_calls=20)]
    config = Config(
        models=Models(default="script"),
        agents=Agents(fetch=["127.0.0.1"], context=[]),
        budgets=Budgets(ceilings=ceilings, prices={"*": Price(1, 2)}) if governed else Budgets(),
    )
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"models": {"script": Scripted(script)}, "allow_egress": (place,)}
        async with server, Host.open(config, root=Path(folder), **options) as host:
            await host.directory.install(
                _TENANT, _pack(toolAllowlist=["fetch"], memoryShape={"longTerm": governed, "conversation": False})
            )
            if governed:
                await host.credentials.put(
                    _TENANT, Credential(credential_id="tide", audiences=(place,)), Secret("of-the-benchmark-93b1e7")
                )
                asking = CreateRun(
                    agent_id=_AGENT, inputs={"task": "How is the tide?"}, configurable={"budget": _BUDGET}
                )
                yield host, (await host.roots.of(asking, _TENANT)).request
            else:
                inputs = {"question": "How is the tide?", "agentId": _AGENT}
                yield host, CreateRun(workflow_id="forestay-ask", inputs=inputs)


async def _turns(host: Host, request: CreateRun, count: int) -> tuple[float, float]:
    """Return the wall and processor seconds of one turn."""
    began, used = time.perf_counter(), time.process_time()
    for _ in range(count):
        made = await host.runs.create_run(request, _TENANT)
        ended = await host.runs.wait(made.run_id, _TENANT)
        assert ended.status == "completed", ended.error
        assert ended.outputs is not None and ended.outputs["output"] == "Low.", ended.outputs
    return (time.perf_counter() - began) / count, (time.process_time() - used) / count


async def _overhead() -> list[tuple[str, str, str]]:
    """Run both hosts side by side, a few runs each in turn, and change who is first in every round: other work of the
    machine disturbs both alike. The overhead is the median of the rounds."""
    taken: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    async with _host(False) as plain, _host(True) as whole:
        hosts = {False: plain, True: whole}
        for host in hosts.values():
            await _turns(*host, _WARM)
        for number in range(_ROUNDS):
            for governed in (number % 2 == 0, number % 2 == 1):
                gc.collect()  # neither pays for the other's garbage
                taken[governed].append(await _turns(*hosts[governed], _TURNS))
        await _check_governed(*whole)
    pairs = list(zip(taken[True], taken[False], strict=True))
    clock, processor = (statistics.median(ours[at] / theirs[at] - 1 for ours, theirs in pairs) for at in (0, 1))
    ours, theirs = (statistics.median(clock for clock, _ in taken[governed]) for governed in (True, False))
    first = f"bare {duration(theirs)}; a fetch over HTTP and an answer, {_ROUNDS} rounds of {_TURNS}"
    return [
        (
            "a governed agent turn (root of a run, budgets, credential, memory)",
            f"{duration(ours)}, {clock:+.0%}",
            f"{first}; of processor {processor:+.0%}; bar: +25 %",
        )
    ]


async def _check_governed(host: Host, request: CreateRun) -> None:
    """Check that every turn was charged and remembered, and that its credential was decided."""
    turns = _WARM + _ROUNDS * _TURNS + 1
    last = await host.runs.create_run(request, _TENANT)
    await host.runs.wait(last.run_id, _TENANT)
    standings = {item.account: item for item in await host.budgets.standings(_TENANT, scope="project")}
    assert [(item.spent["toolCalls"], item.held) for item in standings.values()] == [(turns, {})], standings
    assert len(await host.memories.listed(_TENANT, _AGENT)) == turns
    events = (await host.runs.poll(last.run_id, _TENANT, -1, 0)).events
    assert [event.payload["decision"] for event in events if event.type == "egress.decided"] == ["allowed"]


async def _evaluation() -> list[tuple[str, str, str]]:
    match = {"strategy": "exact", "value": "Low."}
    tasks = [
        {"taskId": f"t{number}", "input": f"How is tide {number}?", "expected": {"kind": "golden", "match": match}}
        for number in range(_TASKS)
    ]
    suite = {"suiteId": "acme.evals.tide", "version": "1.0.0", "modes": ["golden"], "tasks": tasks}
    model = Scripted(Script((Turn("Low."),), position="conversation"))
    config = Config(models=Models(default="script"), agents=Agents(context=[]))
    with tempfile.TemporaryDirectory() as folder:
        async with Host.open(config, root=Path(folder), models={"script": model}) as host:
            await host.directory.install(_TENANT, _pack())
            kept = await host.evaluations.put(_TENANT, suite)
            began = time.perf_counter()
            made = await host.evaluations.request(_TENANT, kept.ref, _AGENT, modes=("golden",))
            ended = await host.runs.wait(made.run_id, _TENANT)
            spent = time.perf_counter() - began
    assert ended.outputs is not None and ended.outputs["summary"]["passed"] is True, ended.error
    figure = f"{duration(spent)}, {_TASKS / spent:,.0f} tasks/s"
    return [(f"an evaluation of {_TASKS:,} tasks, scripted model", figure, "each task a run of the agent, scored")]


async def _roster() -> list[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        options = Options(config=Config(), root=Path(folder), data=Path(folder) / "data")
        async with serve_here(options) as serving:
            await _hired(serving.host)
            headers = {"authorization": f"Bearer {serving.services.keys.lend()}"}
            door = InnerTransport(serving.door)
            async with httpx.AsyncClient(transport=door, base_url=serving.url, headers=headers) as client:
                taken, seen, after = [], 0, ""
                while seen < _MEMBERS:
                    began = time.perf_counter()
                    answer = await client.get("/v1/agents/roster", params={"limit": _PAGE, "after": after})
                    found = answer.raise_for_status().json()["roster"]
                    taken.append(time.perf_counter() - began)
                    seen += len(found)
                    after = found[-1]["rosterId"]
    figure = f"p50 {duration(percentile(taken, 0.5))}, worst {duration(max(taken))}"
    return [(f"a page of {_PAGE} of {_MEMBERS:,} roster entries", figure, "bar: 20 ms")]


async def _hired(host: Host) -> None:
    await host.directory.install(_TENANT, _pack())
    for number in range(_MEMBERS):
        entry = {
            "rosterId": f"host:{number:06}",
            "persona": f"Member {number}",
            "agentRef": {"agentId": _AGENT},
            "owner": {"tenantId": _TENANT},
            "workflows": ["forestay-ask"],
        }
        await host.staff.put(_TENANT, entry)


def run() -> list[tuple[str, str, str]]:
    """(what, figure, note) for the benchmark report."""
    return [row for measured in (_overhead, _evaluation, _roster) for row in asyncio.run(measured())]


if __name__ == "__main__":
    for what, figure, note in run():
        print(f"{what:42} {figure:26} {note}")
