"""Measures the real pi 0.73.1: its loader with its own examples, its runner with the same extension as ours.

One Node process does all of it; starting Node and importing pi does not count. Nothing in pi is sandboxed: a tool call
is a function call, so its figures are a limit that no sandbox can reach.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from forestay.extensions import Corpus, packages_of
from forestay.extensions.conform.node import node_for, run_node
from forestay.extensions.conform.oracle import LOADER
from forestay.kernel import Problem

ORACLE = "pi-0.73"
HOW_TO_GET = "the examples of pi 0.73.1 are not here: `make corpus`"
_SCRIPT = Path(__file__).with_name("pi_runtime.mjs")
_RUNNER = "dist/core/extensions/runner.js"
_PASSES = 3
_CALLS = 4_000
COUNTS = (1, 10, 100)
# Both sides run this extension.
SOURCE = """import { existsSync, readFileSync } from "node:fs";
export default (pi) => {
  const add = (name, execute) => pi.registerTool({ name, label: name, description: "d", execute,
    parameters: { type: "object", properties: { n: { type: "number" } } } });
  add("echo", async (id, params) => ({ content: [{ type: "text", text: "" + params.n }] }));
  add("exists", async () => ({ content: [], details: existsSync("a.txt") }));
  add("read", async () => ({ content: [], details: readFileSync("a.txt", "utf8").length }));
  pi.on("turn_start", () => {});
};
"""
FILE = "x" * 1_000


class Times(msgspec.Struct, frozen=True):
    """Seconds: per pass over the examples, per tool, and per event by the number of extensions."""

    loads: list[list[float]]
    tools: dict[str, list[float]]
    events: dict[str, list[float]]


def examples() -> list[Path]:
    """Return the example extensions of pi 0.73.1; none when they have not been fetched."""
    corpus = Corpus(Path.cwd() / "corpus")
    try:
        return [entry for package in packages_of(corpus, [ORACLE]) for entry in corpus.entries(package)]
    except Problem:
        return []


def measure(entries: list[Path]) -> Times | str:
    """Measure the real pi, or return why it cannot be measured."""
    if not entries:
        return HOW_TO_GET
    try:
        oracle = Corpus(Path.cwd() / "corpus").oracle(ORACLE)
        node = node_for(oracle.node)
    except Problem as problem:
        return f"{problem.message} {problem.details.get('fix', '')}".strip()
    with tempfile.TemporaryDirectory(prefix="forestay-bench-") as work:
        project, home, temp = (Path(work) / name for name in ("project", "home", "temp"))
        for folder in (project, home, temp):
            folder.mkdir()
        (project / "a.txt").write_text(FILE)
        own = Path(work) / "own.js"
        own.write_text(SOURCE)
        question = {
            "loader": str(oracle.folder / LOADER),
            "runner": str(oracle.folder / _RUNNER),
            "cwd": str(project),
            "extensions": [str(entry) for entry in entries],
            "passes": _PASSES,
            "own": str(own),
            "calls": _CALLS,
            "counts": COUNTS,
        }
        done = run_node(node, _SCRIPT, msgspec.json.encode(question), cwd=project, home=home, temp=temp)
    if done.returncode != 0:
        return f"Node ended with {done.returncode}: {done.stderr[-200:].decode('utf-8', 'replace')}"
    return msgspec.json.decode(done.stdout, type=Times)
