"""What an agent turn asks of a database that is elsewhere: each question is a round trip, as dear as a write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.host import Host
from forestay.kernel import Agents, Config, Models
from forestay.models import Script, Scripted, Turn
from forestay.runs import CreateRun
from tests.postgres import new_ledger
from tests.runs.documents import node, workflow

ASKED = {
    "head workflow": 1,  # what the run is of
    "streams workflow": 2,  # those that are tools, everybody's and the tenant's
    "take relay": 1,
    "leave relay": 1,
}
NEVER = {"agents"}  # the host knows its own agents without a question


async def test_a_turn_asks_as_little_however_many_workflows_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORESTAY_SECRET", "b" * 64)
    data = msgspec.structs.replace(Config().data, ledger=new_ledger())
    config = Config(models=Models(default="script"), agents=Agents(allow=["*"], context=[]), data=data)
    models = {"script": Scripted(Script((Turn("Berth 7 it is."),), position="conversation"))}
    async with Host.open(config, root=tmp_path, models=models) as host:
        for number in range(20):
            await host.runs.put_workflow(workflow(f"w{number}", [node("n", "core.noop")]), tenant="default")
        await turn(host)  # what is compiled once is compiled
        asked = counted(monkeypatch, host)
        await turn(host)
    subjects = {name.partition(" ")[2] for name in ASKED} | NEVER
    assert {name: count for name, count in asked.items() if name.partition(" ")[2] in subjects} == ASKED


async def turn(host: Host) -> None:
    request = CreateRun(workflow_id="forestay-ask", inputs={"question": "Where?"})
    ended = await host.runs.wait((await host.runs.create_run(request, "default")).run_id, "default")
    assert ended.status == "completed", ended.error


def counted(monkeypatch: pytest.MonkeyPatch, host: Host) -> Counter[str]:
    """How often each method was asked for each kind of stream or key."""
    found: Counter[str] = Counter()

    def counting(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        async def count(of: Any, *given: Any, **named: Any) -> Any:
            first = of if isinstance(of, str) else next(iter(of), "")
            found[f"{name} {first.partition('/')[0]}"] += 1
            return await work(of, *given, **named)

        return count

    asked = {host.ledger: ("read", "head", "streams"), host.locks: ("take", "leave")}
    for part, names in asked.items():
        for name in names:
            monkeypatch.setattr(part, name, counting(name, getattr(part, name)))
    return found
