"""Sessions between pi and this host: pi's own files are read as pi reads them, and ours are read by pi's reader.

`recorded/` holds a file that pi 0.73.1 wrote, a file that this host wrote, and what pi's own reader found in each.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import ManualClock
from forestay.sessions import Sessions, SessionTree, write_file
from tests.sessions.test_store import opened, said

RECORDED = Path(__file__).with_name("recorded")
SCRIPT = Path(__file__).with_name("pi_sessions.mjs")
PI = "@mariozechner/pi-coding-agent"


def seen(tree: SessionTree) -> dict[str, Any]:
    """A session as this host has it, in the words of pi's reader."""
    labels = {entry["id"]: tree.label_of(entry["id"]) for entry in tree.entries}
    return {
        "name": tree.name,
        "leaf": tree.leaf,
        "entries": tree.entries,
        "branch": [entry["id"] for entry in tree.branch()],
        "labels": {id: label for id, label in labels.items() if label},
        "messages": [[item["role"], item.get("summary") or item.get("content")] for item in tree.messages()],
        "thinkingLevel": tree.thinking,
    }


def read(found: Any) -> dict[str, Any]:
    """What pi's reader said, without the id: a session that is taken in may have another."""
    return {name: value for name, value in found.items() if name != "id"}


async def ours(sessions: Sessions) -> SessionTree:
    """A session of this host with every kind of entry, and two branches."""
    tree = await sessions.create(name="Harbour")
    tree.append("model_change", provider="p", modelId="m")
    tree.append("thinking_level_change", thinkingLevel="high")
    first = tree.append("message", message={**said("Where does the Aurora lie? ☕"), "timestamp": 1})
    call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "notes.md"}}
    tree.append("message", message={**answer("I look.", call), "timestamp": 2})
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "content": [], "isError": False}
    tree.append("message", message={**result, "timestamp": 3})
    kept = tree.append("message", message={**answer("At berth 7."), "timestamp": 4})
    tree.append("custom", customType="mark", data={"a": 1})
    tree.append("custom_message", customType="note", content="The tide is low", display=True, details={"n": 1})
    tree.label(first, "start")
    tree.append("compaction", summary="It was about the Aurora.", firstKeptEntryId=kept, tokensBefore=40)
    tree.append("message", message={**said("And the Borealis?"), "timestamp": 5})
    await sessions.save(tree)
    return tree


def answer(text: str, *more: dict[str, Any]) -> dict[str, Any]:
    usage = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2}
    about = {"api": "a", "provider": "p", "model": "m", "stopReason": "stop", "usage": usage}
    return {"role": "assistant", "content": [{"type": "text", "text": text}, *more], **about}


async def test_a_file_of_pi_is_read_as_pi_reads_it(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as sessions:
        taken = await sessions.take((RECORDED / "of-pi.jsonl").read_bytes())
        found = json.loads((RECORDED / "of-pi.read.json").read_text("utf-8"))
        assert seen(taken) == read(found)
        again = b"".join(write_file(taken)).splitlines()
        before = (RECORDED / "of-pi.jsonl").read_bytes().splitlines()
        assert [json.loads(line) for line in again[1:]] == [json.loads(line) for line in before[1:]]


async def test_pi_reads_a_file_of_ours_as_it_is_here(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as sessions:
        tree = await ours(sessions)
        written = b"".join(write_file(tree))
        assert written == (RECORDED / "of-forestay.jsonl").read_bytes(), "record what pi reads in it again"
        assert seen(tree) == read(json.loads((RECORDED / "of-forestay.read.json").read_text("utf-8")))


@pytest.mark.sweep
async def test_the_real_reader_finds_what_was_recorded(tmp_path: Path) -> None:
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"{PI}@0.73.1"]
    if shutil.which("npm") is None or subprocess.run(install, cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("pi cannot be installed: it needs npm and its registry")
    for name in ("of-pi", "of-forestay"):
        shutil.copy(RECORDED / f"{name}.jsonl", tmp_path)
        command = ["node", str(SCRIPT), str(tmp_path / "node_modules" / PI), "read", str(tmp_path / f"{name}.jsonl")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == json.loads((RECORDED / f"{name}.read.json").read_text("utf-8"))
