"""A process that runs one agent turn through the whole host and kills itself with SIGKILL at boundary N (0: never).

Usage: python -m tests.host.agent_child FOLDER N. A boundary stands before and after everything that is written to the
ledger and after every call of the model. What the model was asked is a line of FOLDER/model, synced before it answers;
what the unsafe tool did is a line of FOLDER/project/ran.log.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forestay.host import Host
from forestay.kernel import Agents, Config, Models, Problem
from forestay.kernel.ledger.table_ledger import TableLedger
from forestay.models import Deltas, Message, Script, Scripted, ScriptedCall, Turn
from forestay.runs import CreateRun

RUN = "run_child"
TENANT = "default"
CALLS = (
    ScriptedCall("read", {"path": "note.md"}),
    ScriptedCall("write", {"path": "copy.md", "content": "berth 7\n"}),
    ScriptedCall("bash", {"command": "echo ran >> ran.log; echo done"}),
)
SCRIPT = Script((Turn("I read, write and run.", CALLS), Turn("The Aurora lies at berth 7.")), position="conversation")


class Boundaries:
    def __init__(self, deadline: int) -> None:
        self.left = deadline

    def reach(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Logged(Scripted):
    """The scripted model, which leaves a line for every call."""

    def __init__(self, file: Path, boundaries: Boundaries, script: Script = SCRIPT) -> None:
        super().__init__(script)
        self._file = file
        self._boundaries = boundaries

    def stream(self, messages: Sequence[Message], **more: Any) -> Deltas:
        with self._file.open("a") as out:
            out.write(f"{sum(message.role == 'assistant' for message in messages)}\n")
            out.flush()
            os.fsync(out.fileno())
        self._boundaries.reach()
        return super().stream(messages, **more)


def is_killed(code: int, folder: Path) -> bool:
    """Whether a life ended as it was told to. Commits are grouped as they come, so a life may have a boundary or two
    less than the calm one: it ends well before the last deadlines, with so many left."""
    return code == -9 or (code == 0 and 0 < -int((folder / "boundaries").read_text()) <= 5)


def count_commits(boundaries: Boundaries) -> None:
    commit = TableLedger.commit

    async def counted(ledger: TableLedger, *appends: Any) -> Any:
        boundaries.reach()
        records = await commit(ledger, *appends)
        boundaries.reach()
        return records

    submit = TableLedger.submit

    def submitted(ledger: TableLedger, *appends: Any, later: bool = False) -> Any:
        boundaries.reach()
        future = submit(ledger, *appends, later=later)
        boundaries.reach()
        return future

    TableLedger.commit = counted  # type: ignore[method-assign]
    TableLedger.submit = submitted  # type: ignore[method-assign]


def count_records(type: str, count: int) -> None:
    """Be killed when so many records of a type are on disk."""
    commit, submit, seen = TableLedger.commit, TableLedger.submit, Boundaries(count)

    def written(appends: Sequence[Any]) -> None:
        for _ in (item for append in appends for item in append.drafts if item.type == type):
            seen.reach()

    async def committed(ledger: TableLedger, *appends: Any) -> Any:
        records = await commit(ledger, *appends)
        written(appends)
        return records

    def submitted(ledger: TableLedger, *appends: Any, later: bool = False) -> Any:
        future = submit(ledger, *appends)  # at once, so that it can be waited for
        future.result(60)
        written(appends)
        return future

    TableLedger.commit = committed  # type: ignore[method-assign]
    TableLedger.submit = submitted  # type: ignore[method-assign]


async def answer(host: Host, project: Path) -> None:
    """The person: looks whether the command ran, and says so."""
    for item in await host.runs.interrupts(RUN, TENANT):
        assert item.data["artifactType"] == "uncertain-effect", item
        assert item.data["artifactData"]["tool"] == "bash"
        ran = (project / "ran.log").exists()
        value = {"action": "reject", "comment": "done"} if ran else {"action": "accept"}
        await host.runs.resolve_by_node(RUN, item.node_id, TENANT, {"resumeValue": value}, "person")


async def main(folder: Path, deadline: int) -> None:
    boundaries = Boundaries(deadline)
    count_commits(boundaries)
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "note.md").write_text("# Harbour\n\nThe Aurora lies at berth 7.\n")
    config = Config(models=Models(default="logged"), agents=Agents(allow=["*"]))
    model = Logged(folder / "model", boundaries)
    async with Host.open(config, root=project, data=folder / "data", models={"logged": model}) as host:
        request = CreateRun(workflow_id="forestay-ask", inputs={"question": "Where does the Aurora lie?"})
        try:
            await host.runs.create_run(request, TENANT, run_id=RUN)
        except Problem as problem:
            if problem.key != "run_already_active":
                raise
        async for event in host.runs.follow(RUN, TENANT):
            if event.type == "interrupt.requested":
                await answer(host, project)
    (folder / "boundaries").write_text(str(-boundaries.left))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
