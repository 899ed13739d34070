"""Measures how far one job walks through the code: the modules it enters, and the calls between modules.

    python scripts/walk.py                the four walks, as the table of docs/explanation/architecture.md
    python scripts/walk.py --list         and the modules that each one enters
    python scripts/walk.py --crossings    and the functions that other modules call most

Each job runs twice to warm up. After the background work of these runs has ended, it runs once more under a profiler,
in process, with a scripted model. A call counts when a function of one module directly enters a function, or resumes a
coroutine, of another module.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import forestay
from forestay import Extensions, Host, workflow
from forestay.kernel import Agents, Config, Models
from forestay.models import Script, Scripted, ScriptedCall, Turn

ROOT = str(Path(forestay.__file__).parent) + "/"
EXTENSION = """import { readFileSync } from "node:fs";
export default (pi) => pi.registerTool({ name: "berth", description: "Reads the note.",
  parameters: { type: "object", properties: {} },
  execute: async () => ({ content: [{ type: "text", text: readFileSync("note.md", "utf8") }] }) });
"""
_REST = 0.5  # seconds for a job's work in other threads to end
Job = Callable[[], Awaitable[object]]


class Walk:
    """What a profiler saw of one job; it counts while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.entered: Counter[str] = Counter()
        self.crossed: Counter[tuple[str, str]] = Counter()

    def saw(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.on or event != "call" or not (inside := _module(frame)):
            return
        self.entered[inside] += 1
        caller = _module(frame.f_back)
        if caller and caller != inside:
            self.crossed[caller, f"{inside}:{frame.f_code.co_qualname}"] += 1


def _module(frame: FrameType | None) -> str | None:
    name = frame.f_code.co_filename if frame is not None else ""
    return name[len(ROOT) : -3] if name.startswith(ROOT) else None


@workflow
def noop_run() -> None:
    workflow.step("core.noop")


@asynccontextmanager
async def _host(root: Path, *turns: Turn) -> AsyncIterator[Host]:
    (root / "note.md").write_text("The Aurora lies at berth 7.\n")
    config = Config(models=Models(default="script"), agents=Agents(allow=["*"], context=[]))
    script = Scripted(Script(turns or (Turn("Berth 7."),), position="conversation"))
    async with Host.open(config, root=root, models={"script": script}) as host:
        yield host


@asynccontextmanager
async def noop(root: Path) -> AsyncIterator[Job]:
    async with _host(root) as host:
        await host.run(noop_run)
        yield lambda: host.run("noop-run")


@asynccontextmanager
async def tool_call(root: Path) -> AsyncIterator[Job]:
    (root / "berth.ts").write_text(EXTENSION)
    async with _host(root) as host, Extensions(host.ledger, root=root, grants=["read"]) as extensions:
        await extensions.load(root / "berth.ts")
        yield lambda: extensions.call_tool("berth", {})


@asynccontextmanager
async def dispatch(root: Path) -> AsyncIterator[Job]:
    async with _host(root) as host:
        session = await host.relay.init("walk")
        await session.ingest("The Aurora lies at berth 7. The Borealis lies at berth 9.", "note")
        yield lambda: session.dispatch("You know the harbour.", "Where does the Aurora lie?")


@asynccontextmanager
async def ask(root: Path) -> AsyncIterator[Job]:
    turns = (Turn("", (ScriptedCall("read", {"path": "note.md"}),)), Turn("Berth 7."))
    async with _host(root, *turns) as host:
        yield lambda: host.run("forestay-ask", {"question": "Where does the Aurora lie?"})


WALKS: dict[str, Callable[[Path], Any]] = {
    "an extension's tool call with one file read": tool_call,
    "a no-op run in process": noop,
    "a relay dispatch": dispatch,
    "an agent's ask with one tool": ask,
}


async def measured(opened: Callable[[Path], Any]) -> Walk:
    walk = Walk()
    threading.setprofile(walk.saw)
    sys.setprofile(walk.saw)
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with opened(Path(folder)) as job:
                await job()
                await job()
                await asyncio.sleep(_REST)
                walk.on = True
                await job()
                walk.on = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return walk


def main() -> None:
    print("| the job | modules entered | calls between modules |\n|---|---|---|")
    for name, opened in WALKS.items():
        walk = asyncio.run(measured(opened))
        print(f"| {name} | {len(walk.entered)} | {walk.crossed.total()} |")
        for module, count in sorted(walk.entered.items()) if "--list" in sys.argv else ():
            print(f"    {module:40} {count}")
        for (caller, called), count in walk.crossed.most_common() if "--crossings" in sys.argv else ():
            print(f"    {count:5} {caller} -> {called}")


if __name__ == "__main__":
    main()
