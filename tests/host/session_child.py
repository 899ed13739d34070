"""A process that holds a conversation of two turns and kills itself with SIGKILL at boundary N (0: never).

Usage: python -m tests.host.session_child FOLDER N. Boundaries are those of `agent_child`: before and after everything
that is written to the ledger, and at every call of the model. Started again, it goes on with the session that it finds.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from forestay.host import Host
from forestay.kernel import Agents, Config, Models
from forestay.models import Script, ScriptedCall, Turn
from forestay.sessions import role_of
from tests.host.agent_child import TENANT, Boundaries, Logged, count_commits

CALLS = (
    ScriptedCall("write", {"path": "copy.md", "content": "berth 7\n"}),
    ScriptedCall("bash", {"command": "echo ran >> ran.log; echo done"}),
)
SCRIPT = Script((Turn("At berth 7."), Turn("I copy it.", CALLS), Turn("Copied.")), position="conversation")
SAID = ("Where does the Aurora lie?", "Copy it.")


async def answer(host: Host, run_id: str, project: Path) -> None:
    """The person: looks whether the command ran, and says so."""
    for item in await host.runs.interrupts(run_id, TENANT):
        assert item.data["artifactType"] == "uncertain-effect", item
        ran = (project / "ran.log").exists()
        value = {"action": "reject", "comment": "done"} if ran else {"action": "accept"}
        await host.runs.resolve_by_node(run_id, item.node_id, TENANT, {"resumeValue": value}, "person")


async def converse(host: Host, project: Path) -> None:
    known = await host.sessions.list()
    tree = await host.sessions.open(known[0].session_id) if known else host.sessions.new()
    while True:
        run_id = await host.turns.under_way(tree)
        if run_id is None:
            said = sum(role_of(entry) == "user" for entry in tree.entries)
            if said == len(SAID):
                return
            run_id = await host.turns.start(tree, SAID[said])
        async for event in host.runs.follow(run_id, TENANT):
            if event.type == "interrupt.requested":
                await answer(host, run_id, project)


async def main(folder: Path, deadline: int) -> None:
    boundaries = Boundaries(deadline)
    count_commits(boundaries)
    project = folder / "project"
    project.mkdir(exist_ok=True)
    config = Config(models=Models(default="logged"), agents=Agents(allow=["*"]))
    models = {"logged": Logged(folder / "model", boundaries, SCRIPT)}
    async with Host.open(config, root=project, data=folder / "data", models=models) as host:
        await converse(host, project)
    (folder / "boundaries").write_text(str(-boundaries.left))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
