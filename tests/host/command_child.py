"""A process in which a person calls a command that asks, does something and begins a turn with two tools. It kills
itself with SIGKILL at boundary N (0: never).

Usage: python -m tests.host.command_child FOLDER N there|away. Boundaries are those of `agent_child`. Started again, it
goes on with the session that it finds; the person is `there`, or answers what the run asks. Each answer that the host
took is a line of FOLDER/answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

from forestay.host import Host
from forestay.kernel import Agents, Config, ExtensionConfig, ExtensionPolicy, Models
from forestay.models import Script, ScriptedCall, Turn
from forestay.sessions import SessionTree
from tests.host.agent_child import TENANT, Boundaries, Logged, count_commits

HARBOUR = """
export default function (pi) {
  pi.registerCommand("moor", { handler: async (args, ctx) => {
    pi.appendEntry("begun", { args, ui: ctx.hasUI });
    const berth = await ctx.ui.select("Which berth?", ["north", "south"]);
    const name = await ctx.ui.input("Her name?");
    let rope = "made fast";
    try { await pi.exec("sh", ["-c", "echo moored >> moored.log"]); } catch (error) { rope = "looked after"; }
    pi.appendEntry("moored", { berth, name, rope });
    pi.sendUserMessage("Copy the log of " + name + ".");
  } });
  pi.on("tool_call", async (event, ctx) => {
    if (event.toolName !== "bash") return;
    const sure = await ctx.ui.confirm("May it run?", event.input.command);
    if (!sure) return { block: true, reason: "no" };
    pi.appendEntry("allowed", { tool: event.toolName, ui: ctx.hasUI });
  });
}
"""
CALLS = (
    ScriptedCall("write", {"path": "copy.md", "content": "berth 7\n"}),
    ScriptedCall("bash", {"command": "echo ran >> ran.log; echo done"}),
)
SCRIPT = Script((Turn("I copy it.", CALLS), Turn("Copied.")), position="conversation")
ANSWERS: dict[str, Any] = {"Which berth?": "south", "Her name?": "Aurora", "May it run?": True}


class Person:
    """Answers what extensions and runs ask, and writes down what was taken."""

    def __init__(self, host: Host, tree: SessionTree, folder: Path) -> None:
        self._host, self._tree, self._folder = host, tree, folder

    def _note(self, title: str) -> None:
        with (self._folder / "answers").open("a") as out:
            out.write(f"{title}\n")
            out.flush()
            os.fsync(out.fileno())

    async def look(self) -> None:
        """Follow the session, and answer its dialogs."""
        answered: set[str] = set()
        async with aclosing(self._host.fronts.states(self._tree)) as states:
            async for state in states:
                for dialog in state.ui.dialogs:
                    if dialog.request_id not in answered:
                        answered.add(dialog.request_id)
                        await self._host.fronts.answer(self._tree, dialog.request_id, ANSWERS[dialog.title])
                        self._note(dialog.title)

    async def resolve(self, run_id: str) -> None:
        for item in await self._host.runs.interrupts(run_id, TENANT):
            value, title = self._said(item.data)
            await self._host.runs.resolve_by_node(run_id, item.node_id, TENANT, {"resumeValue": value}, "person")
            self._note(title)

    def _said(self, asks: dict[str, Any]) -> tuple[dict[str, Any], str]:
        if asks["artifactType"] == "elicitation":
            title = asks["title"].split(": ")[0]
            answer = {"arguments": {"answer": ANSWERS[title]}}
            return {"action": "edit-accept", "editedArtifactData": answer}, title
        assert asks["artifactType"] == "uncertain-effect", asks
        tool = asks["artifactData"]["tool"]
        done = (self._folder / "project" / {"bash": "ran.log", "exec": "moored.log"}[tool]).exists()
        return {"action": "reject", "comment": "done"} if done else {"action": "accept"}, f"{tool}?"


async def converse(host: Host, tree: SessionTree, person: Person) -> None:
    if tree.turn is None:
        await host.fronts.say(tree, "/moor stern first", tenant=TENANT, principal=None)
    while (run_id := await host.turns.under_way(tree)) is not None:
        async for event in host.runs.follow(run_id, TENANT):
            if event.type == "interrupt.requested":
                await person.resolve(run_id)


async def main(folder: Path, deadline: int, where: str) -> None:
    boundaries = Boundaries(deadline)
    count_commits(boundaries)
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "harbour.ts").write_text(HARBOUR)
    policy = ExtensionPolicy(mode="permissive")
    config = Config(
        models=Models(default="logged"),
        agents=Agents(allow=["*"]),
        extensions=ExtensionConfig(paths=["harbour.ts"], policy=policy),
    )
    models = {"logged": Logged(folder / "model", boundaries, SCRIPT)}
    async with Host.open(config, root=project, data=folder / "data", models=models) as host:
        await host.extensions.trust.give(host.root)
        known = await host.sessions.list()
        tree = await host.sessions.open(known[0].session_id) if known else host.sessions.new()
        person = Person(host, tree, folder)
        looking = asyncio.ensure_future(person.look()) if where == "there" or tree.turn is None else None
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await converse(host, tree, person)
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
    (folder / "boundaries").write_text(str(-boundaries.left))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
