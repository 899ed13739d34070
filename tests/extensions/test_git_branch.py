"""The branch of a folder, read from git's own files (B1, B2), and who is told it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forestay.extensions.connectors.ui import ScriptedUi
from forestay.extensions.extensions import Extensions
from forestay.extensions.git_branch import branch_of, repository
from forestay.kernel import Ledger, Mode

FOOT = """export default (pi) => pi.registerCommand("foot", { handler: async (args, ctx) => {
  let branch; ctx.ui.setFooter((tui, theme, data) => { branch = data.getGitBranch(); return { render: () => [] }; });
  return branch;
} });"""


def told(folder: Path) -> str | None:
    place = repository(str(folder))
    return branch_of(place) if place is not None else None


def head(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "HEAD").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "branch"),
    [
        ("ref: refs/heads/main\n", "main"),
        ("ref: refs/heads/spring/tide", "spring/tide"),
        ("0123456789012345678901234567890123456789\n", "detached"),
        ("ref: refs/remotes/origin/main", "detached"),
        ("ref: refs/heads/.invalid", None),
        ("", None),
        ("ref: refs/heads/" + "x" * 5000, "x" * 255),
    ],
)
def test_head_tells_the_branch_and_nothing_else(tmp_path: Path, text: str, branch: str | None) -> None:
    head(tmp_path / ".git", text)
    assert told(tmp_path) == branch


def test_a_folder_below_and_a_worktree_find_their_repository(tmp_path: Path) -> None:
    main = tmp_path / "main"
    head(main / ".git", "ref: refs/heads/main\n")
    (main / "src" / "deep").mkdir(parents=True)
    assert told(main / "src" / "deep") == "main"
    head(main / ".git" / "worktrees" / "side", "ref: refs/heads/side\n")
    side = tmp_path / "side"
    side.mkdir()
    (side / ".git").write_text(f"gitdir: {main / '.git' / 'worktrees' / 'side'}\n")
    assert told(side) == "side"
    (side / ".git").write_text("gitdir: ../nowhere\n")
    assert told(side) is None
    (side / ".git").write_text("something else")
    assert told(side) is None
    (side / ".git").unlink()
    os.mkfifo(side / ".git")
    assert told(side) is None, "a pipe is not waited for"


@pytest.mark.api("ctx.ui.setFooter")
@pytest.mark.parametrize(("mode", "grants", "branch"), [("strict", ["ui"], None), ("strict", ["ui", "read"], "main")])
async def test_an_extension_is_told_where_it_may_read(
    tmp_path: Path, mode: Mode, grants: list[str], branch: str | None
) -> None:
    head(tmp_path / ".git", "ref: refs/heads/main\n")
    (tmp_path / "foot.ts").write_text(FOOT)
    async with (
        Ledger.open(tmp_path / "l.db") as ledger,
        Extensions(ledger, root=tmp_path, mode=mode, grants=grants, ui=ScriptedUi([])) as suite,
    ):
        await suite.load(tmp_path / "foot.ts")
        assert await suite.run_command("foot") == branch
