"""A process that dies: `waiting` at a capability prompt, `granted` in what was allowed, `node` in a tool of a workflow.

Usage: python -m tests.host.prompt_child FOLDER (waiting|granted|node). It ends by SIGKILL, never otherwise.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.host.prompting import options, person
from tests.runs.documents import node, workflow

BASH = {"tool": "bash", "arguments": {"command": "echo ran >> ran.log; sleep 60"}}


async def in_a_node(folder: Path) -> None:
    async with person(options(folder)) as me:
        document = workflow("bash", [node("t", "core.tool", config=BASH)])
        await me.serving.host.runs.put_workflow(document, tenant=None)
        run_id = await me.start("bash")
        (folder / "run").write_text(run_id)
        assert await me.settled(run_id) == "waiting-approval"
        answering = asyncio.create_task(me.answer(run_id, action="accept"))
        while not (folder / "ran.log").exists():
            await asyncio.sleep(0.01)
        answering.cancel()
        os.kill(os.getpid(), signal.SIGKILL)


async def main(folder: Path, when: str) -> None:
    if when == "node":
        await in_a_node(folder)
    async with person(options(folder, "note")) as me:
        run_id = await me.start()
        (folder / "run").write_text(run_id)
        assert await me.settled(run_id) == "waiting-approval"
        assert (await me.question(run_id))["data"]["artifactData"]["capability"] == "read"
        assert await me.answer(run_id, action="accept") == "waiting-approval"
        assert (await me.question(run_id))["data"]["artifactData"]["capability"] == "write"
        if when == "granted":
            answering = asyncio.create_task(me.answer(run_id, action="accept", remember="always"))
            while not (folder / "ran.log").exists():
                await asyncio.sleep(0.01)
            answering.cancel()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
