"""A process in which an extension speaks to an agent that is at work, once to steer it and once for later. It kills
itself with SIGKILL at boundary N (0: never).

Usage: python -m tests.host.steering_child FOLDER N. Boundaries are those of `agent_child`. Started again, it goes on
with the session that it finds.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from forestay.host import Host
from forestay.kernel import Agents, Config, ExtensionConfig, ExtensionPolicy, Models
from forestay.models import Script, ScriptedCall, Turn
from tests.host.agent_child import TENANT, Boundaries, Logged, count_commits

HARBOUR = """
export default function (pi) {
  pi.on("tool_call", async (event) => {
    if (event.input.path !== "first.md") return;
    pi.sendUserMessage("And then rest.", { deliverAs: "followUp" });
    pi.sendUserMessage("Make haste.", { deliverAs: "steer" });
    pi.sendMessage({ customType: "tide", content: "The tide is high.", display: true });
    pi.sendMessage({ customType: "wind", content: "Calm.", display: true }, { triggerTurn: false });
  });
}
"""
CALLS = tuple(ScriptedCall("write", {"path": path, "content": "berth 7\n"}) for path in ("first.md", "second.md"))
SCRIPT = Script(
    (Turn("I write.", CALLS), Turn("I hurry."), Turn("So it is."), Turn("I rest.")), position="conversation"
)


async def main(folder: Path, deadline: int) -> None:
    boundaries = Boundaries(deadline)
    count_commits(boundaries)
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "harbour.ts").write_text(HARBOUR)
    config = Config(
        models=Models(default="logged"),
        agents=Agents(allow=["*"]),
        extensions=ExtensionConfig(paths=["harbour.ts"], policy=ExtensionPolicy(mode="permissive")),
    )
    models = {"logged": Logged(folder / "model", boundaries, SCRIPT)}
    async with Host.open(config, root=project, data=folder / "data", models=models) as host:
        await host.extensions.trust.give(host.root)
        known = await host.sessions.list()
        tree = await host.sessions.open(known[0].session_id) if known else host.sessions.new()
        async with asyncio.timeout(60):
            if tree.turn is None:
                await host.turns.start(tree, "Write it down.")
            while (run_id := await host.turns.under_way(tree)) is not None:
                await host.runs.wait(run_id, TENANT)
        assert not tree.wishes, tree.wishes
    (folder / "boundaries").write_text(str(-boundaries.left))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
