"""A person's waiting times: one command with an extension from the cache, many extensions at once, many loaded.

The commands are started as programs, as a shell does; each runs once before, so that the cache is filled.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.extensions.dispatcher_world import ENVIRON

from benchmarks import extension_corpus, pi_runtime
from benchmarks.measure import duration, in_turns, percentile
from forestay.extensions import Extensions, Settings
from forestay.kernel import Ledger

Row = tuple[str, str, str]
RUNS, FOLDER, LOADED = 7, 100, 200
CALLS, TURNS = 100, 7
_SOURCE = """import { Type } from "typebox";
export default function (pi) {
  pi.registerTool({ name: "tool_%(number)d", label: "Tool", description: "Says it again.",
    parameters: Type.Object({ text: Type.String() }),
    execute: async (id, { text }) => ({ content: [{ type: "text", text }] }) });
  pi.registerCommand("command_%(number)d", { description: "Nothing.", handler: async () => {} });
  pi.on("session_start", async () => {});
}
"""


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="forestay-bench-") as folder:
        paths = _written(Path(folder), max(FOLDER, LOADED))
        rows = _commands(Path(folder), paths)
        rows.append(asyncio.run(_beside_others(Path(folder), paths[:LOADED])))
    artifacts = extension_corpus.compiled(pi_runtime.examples())
    what, figure, beside = asyncio.run(extension_corpus.memory(artifacts))
    return [*rows, (what, figure, f"goal: 2.5 MB; {beside}")]


def _written(folder: Path, count: int) -> list[Path]:
    paths = [folder / f"extension_{number}.ts" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_text(_SOURCE % {"number": number})
    return paths


def _commands(folder: Path, paths: list[Path]) -> list[Row]:
    first, many = str(paths[0]), [str(path) for path in paths[:FOLDER]]
    empty = _wall(folder, ["-c", "pass"], RUNS)
    beside = f"goal: 0.35 s; the interpreter alone {duration(percentile(empty, 0.5))}"
    call = _wall(folder, _ext("call", first, "tool_0", '{"text":"seven"}'), RUNS)
    inspect = _wall(folder, _ext("inspect", first), RUNS)
    folded = _wall(folder, _ext("inspect", *many), 1)
    return [
        ("`ext call` from the cache, p50", duration(percentile(call, 0.5)), beside),
        ("`ext inspect` from the cache, p50", duration(percentile(inspect, 0.5)), beside),
        (f"`ext inspect` of {len(many)} extensions from the cache", duration(folded[0]), "goal: 3 s"),
    ]


def _ext(*words: str) -> list[str]:
    return ["-P", "-m", "forestay.cli.main", "ext", *words, "--root", ".", "--data", "data", "--json"]


def _wall(folder: Path, words: list[str], runs: int) -> list[float]:
    """Return the seconds of each run of a program, after a first run that does not count."""
    taken = []
    environ = {**os.environ, "PI_EXTENSION_LOG_DIR": str(folder / "logs")}
    for _ in range(runs + 1):
        started = time.perf_counter()
        subprocess.run([sys.executable, *words], cwd=folder, env=environ, capture_output=True, check=True, timeout=600)
        taken.append(time.perf_counter() - started)
    return taken[1:]


async def _beside_others(folder: Path, paths: list[Path]) -> Row:
    """Call the same tool in a suite of its own and in one with many others, in turns."""
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(Ledger.open(folder / "l.db"))
        alone, among = [
            await stack.enter_async_context(
                Extensions(ledger, root=folder, mode="strict", settings=Settings(environ=ENVIRON, data=folder / "data"))
            )
            for _ in range(2)
        ]
        middle = len(paths) // 2
        await alone.load(paths[middle])
        for path in paths:
            await among.load(path)
        given = {"text": "seven"}
        works = [lambda suite=suite: suite.call_tool(f"tool_{middle}", given) for suite in (alone, among)]
        one, many = await in_turns(works, among.recorded, CALLS, TURNS)
    times = percentile([crowded / single for single, crowded in zip(one, many, strict=True)], 0.5)
    told = f"{times:.2f} times that with one, {duration(percentile(one, 0.5))}; goal: the same"
    return (f"tool call with {len(paths)} extensions loaded, p50", duration(percentile(many, 0.5)), told)
