"""pi's built-in tools for real: their parameters, their results, their limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.dispatcher_world import World

from forestay.extensions.connectors.tool import head, size_of, tail


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, grants=["read", "write", "exec"])
    (world.project / "src" / "deep").mkdir(parents=True)
    (world.project / "src" / "a.py").write_text("import os\n\ndef main():\n    return 'TODO'\n")
    (world.project / "src" / "deep" / "b.txt").write_text("todo: nothing\n")
    (world.project / "node_modules").mkdir()
    (world.project / "node_modules" / "x.py").write_text("TODO")
    (world.project / "bin").write_bytes(b"\0\1TODO")
    yield world
    world.close()


def run(world: World, name: str, **given: Any) -> str:
    return str(world.ok("tool", name=name, input=given)["content"][0]["text"])


def test_read_with_offset_limit_and_notices(world: World) -> None:
    (world.project / "long").write_text("\n".join(f"line {n}" for n in range(1, 3001)))
    assert run(world, "read", path="src/a.py").startswith("import os\n")
    assert (
        run(world, "read", path="src/a.py", offset=3, limit=1)
        == "def main():\n\n[2 more lines in file. Use offset=4 to continue.]"
    )
    result = world.ok("tool", name="read", input={"path": "long"})
    assert result["content"][0]["text"].endswith("[Showing lines 1-2000 of 3000. Use offset=2001 to continue.]")
    assert result["details"]["truncation"]["truncatedBy"] == "lines"
    assert world.refused("tool", name="read", input={"path": "src/a.py", "offset": 99}).code == "invalid_request"
    assert world.refused("tool", name="read", input={"path": "none"}).details["errno"] == "ENOENT"
    (world.project / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n123")
    assert world.ok("tool", name="read", input={"path": "p.png"})["content"][1]["mimeType"] == "image/png"


def test_write_makes_folders_and_edit_is_exact(world: World) -> None:
    assert (
        run(world, "write", path="new/file.txt", content="one\ntwo\n") == "Successfully wrote 8 bytes to new/file.txt"
    )
    edits = [{"oldText": "one", "newText": "1"}, {"oldText": "two", "newText": "2"}]
    result = world.ok("tool", name="edit", input={"path": "new/file.txt", "edits": edits})
    assert (world.project / "new/file.txt").read_text() == "1\n2\n"
    assert result["details"]["firstChangedLine"] == 1 and "-1 one" in result["details"]["diff"]
    for bad in (
        [{"oldText": "zzz", "newText": ""}],
        [{"oldText": "\n", "newText": ""}],
        [{"oldText": "", "newText": ""}],
    ):
        assert (
            world.refused("tool", name="edit", input={"path": "new/file.txt", "edits": bad}).code == "invalid_request"
        )
    (world.project / "dos").write_bytes(b"a\r\nb\r\n")
    world.ok("tool", name="edit", input={"path": "dos", "edits": [{"oldText": "a\nb", "newText": "c\nd"}]})
    assert (world.project / "dos").read_bytes() == b"c\r\nd\r\n"


def test_ls_find_and_grep(world: World) -> None:
    assert run(world, "ls", path="src") == "a.py\ndeep/"
    assert run(world, "find", pattern="*.txt") == "src/deep/b.txt"
    assert run(world, "find", pattern="src/**/*.py") == "src/a.py"
    assert run(world, "find", pattern="*.none") == "No files found matching pattern"
    assert run(world, "grep", pattern="TODO") == "src/a.py:4:     return 'TODO'"
    assert run(world, "grep", pattern="todo", ignoreCase=True, glob="*.txt") == "src/deep/b.txt:1: todo: nothing"
    assert run(world, "grep", pattern="def", context=1, path="src").startswith(
        "a.py-2- \na.py:3: def main():\na.py-4- "
    )
    assert "1 matches limit" in run(world, "grep", pattern="o", limit=1)
    assert run(world, "grep", pattern="(", literal=True).startswith("src/a.py:3:")
    assert world.refused("tool", name="grep", input={"pattern": "("}).code == "invalid_request"
    assert world.refused("tool", name="grep", input={"pattern": "x", "path": "/etc"}).code == "denied"
    assert world.refused("tool", name="find", input={"pattern": "../*"}).code == "invalid_request"


def test_a_regular_expression_cannot_explode(world: World) -> None:
    (world.project / "a").write_text("a" * 50_000)
    assert run(world, "grep", pattern="(a+)+$b", path="a") == "No matches found"


def test_bash_shows_output_code_and_time(world: World) -> None:
    assert run(world, "bash", command="echo out; echo err >&2") == "out\nerr"
    error = world.refused("tool", name="bash", input={"command": "echo x; exit 3"})
    assert error.code == "io" and error.message == "x\n\nCommand exited with code 3"
    late = world.refused("tool", name="bash", input={"command": "sleep 30", "timeout": 1})
    assert late.code == "timeout" and "timed out after 1 seconds" in late.message
    assert "[Showing lines" in run(world, "bash", command="seq 5000")


def test_unknown_tools_need_the_tool_capability(world: World) -> None:
    assert world.refused("tool", name="deploy", input={}).code == "denied"
    assert world.refused("tool", name="read", input="x").code == "invalid_request"


def test_truncation_keeps_whole_lines() -> None:
    assert head("a\nb\nc", 2)["content"] == "a\nb" and tail("a\nb\nc", 2)["content"] == "b\nc"
    wide = head("x" * 100, 10, 50)
    assert wide["firstLineExceedsLimit"] and wide["content"] == ""
    assert tail("x" * 100, 10, 50)["lastLinePartial"] and size_of(2048) == "2.0KB"
