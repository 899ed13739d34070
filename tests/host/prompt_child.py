"""A process that meets a capability prompt and dies: `waiting` at it, or `granted` in the middle of what was allowed.

Usage: python -m tests.host.prompt_child FOLDER (waiting|granted). It ends by SIGKILL, never otherwise.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.host.prompting import options, person


async def main(folder: Path, when: str) -> None:
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
