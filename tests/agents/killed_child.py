"""A process that runs one agent invocation over a real ledger and kills itself with SIGKILL at boundary N (0: never).

Usage: python -m tests.agents.killed_child FOLDER N. The world is the folder: what tools did and what the model was
asked are lines of files there, written and synced before anything is recorded.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from forestay.agents import Agent, AgentResult, Direct, Invocation
from forestay.kernel import Decision, Draft, Ledger, SystemClock
from forestay.models import Model, Script, Scripted, ScriptedCall, Turn
from forestay.tools import ApprovalAnswer, ApprovalRequest, Guarded, Tool, ToolOutcome
from tests.agents.world import TOOLS, decided, manifest

STREAM = "run/one"
CALLS = tuple(ScriptedCall(name, {"x": 1}) for name in ("do_read", "do_write", "do_unsafe"))
SCRIPT = Script((Turn("hm", CALLS), Turn("Done.")), position="conversation", name="scripted:test")


class World:
    def __init__(self, folder: Path, ledger: Ledger, deadline: int) -> None:
        self.folder = folder
        self.ledger = ledger
        self.left = deadline
        self.name = "scripted:test"
        self.later: list[Draft] = []

    def boundary(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def happen(self, file: str, line: str) -> None:
        with (self.folder / file).open("a") as out:
            out.write(line + "\n")
            out.flush()
            os.fsync(out.fileno())
        self.boundary()

    def happened(self, file: str) -> list[str]:
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    async def records(self, kind: str) -> dict[str, Any]:
        records = [*await self.ledger.read(STREAM), *self.later]
        return {record.payload["key"]: record.payload["value"] for record in records if record.type == kind}

    async def record(self, kind: str, key: str, value: Any, *, later: bool = False) -> None:
        """To the log, behind what was kept for later; or kept for later."""
        self.later.append(Draft(kind, {"key": key, "value": value}))
        if not later:
            await self.flush()

    async def flush(self) -> None:
        drafts, self.later = self.later, []
        if drafts:
            self.boundary()
            await self.ledger.append(STREAM, drafts)
            self.boundary()

    async def once(self, key: str, fn: Callable[[], Awaitable[Any]], /, *, later: bool = False) -> Any:
        known = await self.records("effect")
        if key not in known:
            if not later:
                await self.flush()
            value = await fn()
            await self.record("effect", key, value, later=later)
            return value
        return known[key]

    async def ask(self, key: str, request: ApprovalRequest) -> ApprovalAnswer:
        known = await self.records("answer")
        if key not in known:
            name = f"{request.tool}:{request.known['callId']} "
            done = any(line.startswith(name) for line in self.happened("tools"))
            known[key] = {"action": "reject", "note": "do_unsafe did 1"} if done else {"action": "accept"}
            await self.record("answer", key, known[key])
        return msgspec.convert(known[key], ApprovalAnswer)

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        return decided("allow")

    async def list(self) -> Sequence[Tool]:
        return TOOLS

    async def prepare(self, tool: Tool, arguments: Any) -> Any:
        return arguments

    async def call(
        self, tool: Tool, arguments: Any, *, call_id: str, idempotency_key: str | None, update: Any
    ) -> ToolOutcome:
        """Do it, unless the key says that it was done: the line that does it also remembers the key."""
        if idempotency_key is None or not any(line.endswith(f" {idempotency_key}") for line in self.happened("tools")):
            self.happen("tools", f"{tool.name}:{call_id} {idempotency_key}")
        return ToolOutcome(f"{tool.name} did {arguments['x']}")

    def stream(self, messages: Any, **more: Any) -> Any:
        self.happen("model", str(sum(message.role == "assistant" for message in messages)))
        return Scripted(SCRIPT).stream(messages)


async def main(folder: Path, deadline: int) -> None:
    async with Ledger.open(folder / "ledger.db") as ledger:
        world = World(folder, ledger, deadline)
        effects = Guarded(world.once, str(os.getpid()) + os.urandom(4).hex(), SystemClock())
        model = Direct(cast(Model, world), effects)
        agent = Agent(manifest(), model=model, tools=world, effects=effects, gate=world, approvals=world)
        known = await world.records("event")
        async for item in agent.invoke(Invocation(id="one", task="Do it.", node_id="n")):
            if isinstance(item, AgentResult):
                assert item.output == "Done.", item
            elif item.key not in known:
                await world.record("event", item.key, [item.type, item.payload], later=bool(world.later))
        await world.flush()
        (folder / "boundaries").write_text(str(-world.left))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
