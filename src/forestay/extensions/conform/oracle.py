"""Asks the real loader what an extension registers: the reference for our own loader (Pi §6.2)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from forestay.extensions.conform.node import node_for, run_node
from forestay.extensions.tool_wording import ToolWords, wording_of
from forestay.kernel import Problem, canonical

_SCRIPT = Path(__file__).with_name("oracle.mjs")
_WORDING = Path(__file__).with_name("wording.mjs")
LOADER = "dist/core/extensions/loader.js"


class Oracle(msgspec.Struct, frozen=True):
    """An installed pi: its package folder and the Node that it needs."""

    folder: Path
    node: tuple[int, ...]


class Verdict(msgspec.Struct, frozen=True):
    """The loader's answer for one entry: its registrations, or why it did not load."""

    path: str
    registrations: dict[str, Any] | None = None
    error: str | None = None


def ask(oracle: Oracle, entries: Sequence[Path], *, timeout: float = 600.0) -> list[Verdict]:
    """Load every entry in the real loader; an entry that crashes the process gets an error."""
    found: dict[str, Verdict] = {}
    pending = [str(entry) for entry in entries]
    while pending:
        answers = _run(oracle, pending, timeout)
        found |= {answer.path: answer for answer in answers}
        rest = [path for path in pending if path not in found]
        if not answers and rest:
            found[rest[0]] = Verdict(rest[0], error="The loader's process ended while loading this extension.")
            rest = rest[1:]
        pending = rest
    return [found[str(entry)] for entry in entries]


def wording(oracle: Oracle) -> dict[str, ToolWords]:
    """Return the real host's wording of its own tools; an extension that wraps a tool passes it on."""
    with tempfile.TemporaryDirectory(prefix="forestay-oracle-") as work:
        folder = Path(work)
        asked = canonical.encode({"package": str(oracle.folder), "cwd": work})
        done = run_node(node_for(oracle.node), _WORDING, asked, cwd=folder, home=folder, temp=folder, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
    if not lines:
        reason = done.stderr.decode("utf-8", "replace")[-300:]
        told = "The real host did not describe its tools."
        raise Problem("asset_missing", told, reason=reason, fix="Run `make corpus`.")
    described: dict[str, Any] = canonical.decode(lines[-1])
    return wording_of(described)


def _run(oracle: Oracle, paths: list[str], timeout: float) -> list[Verdict]:
    with tempfile.TemporaryDirectory(prefix="forestay-oracle-") as work:
        home, cwd = Path(work) / "home", Path(work) / "project"
        temp = Path(work) / "temp"
        for each in (home, cwd, temp):
            each.mkdir()
        question = {"loader": str(oracle.folder / LOADER), "cwd": str(cwd), "extensions": paths}
        done = run_node(
            node_for(oracle.node), _SCRIPT, canonical.encode(question), cwd=cwd, home=home, temp=temp, timeout=timeout
        )
        text = done.stdout.replace(str(cwd).encode(), b"/project").replace(str(home).encode(), b"/home")
    return [canonical.decode(line, Verdict) for line in text.splitlines() if line.startswith(b"{")]
