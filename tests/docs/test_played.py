"""Every page of the documentation is played: files are written, commands typed, and what it shows is what comes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks, name
from tests.docs.player import Player, expect

WITH_BLOCKS = [page for page in PAGES if blocks(page)]
IN_THE_SWEEP = {"tutorial", "how-to", "explanation"}  # with what starts most programs, the suite would take too long


def _played(page: Path) -> Any:
    return pytest.param(page, marks=[pytest.mark.sweep] if page.parent.name in IN_THE_SWEEP else [])


@pytest.mark.parametrize("page", list(map(_played, WITH_BLOCKS)), ids=name)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    found = blocks(page)
    player = Player(tmp_path, clone=any("make setup" in item.text for item in found))
    try:
        for block in found:
            player.play(block)
    finally:
        player.close()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_block_is_overlooked(page: Path) -> None:
    fences = re.findall(r"^ *```", page.read_text("utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), target


def test_every_make_target_that_is_named_exists() -> None:
    """Also in running text: `make thing`."""
    named = {target for page in PAGES for target in re.findall(r"`make ([a-z]+)", page.read_text("utf-8"))}
    assert len(named) > 5
    for target in sorted(named):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, (target, done.stderr)


# The player itself


def block(language: str, text: str, mark: str | None = None, title: str | None = None) -> Block:
    return Block(language, title, mark, text, 1)


@pytest.mark.parametrize(
    "bad",
    [
        block("sh", "false\n"),
        block("sh", "true  # exit 3\n"),
        block("console", "$ echo one\ntwo\n"),
        block("python", "assert 0\n"),
        block("toml", "[htpt]\nport = 1\n"),
        block("toml", "[nothing]\nport = 1\n"),
        block("json", "{,}"),
        block("text", "out of nowhere\n"),
        block("", "forestay version\n"),
        block("ts", "let unplayed = 1;\n"),
        block("sh", "forestay no-such-command\n", mark="help: because"),
        block("sh", "make no-such-target\n"),
    ],
    ids=lambda bad: f"{bad.language}:{bad.text.strip()[:20]}",
)
def test_a_block_that_does_not_hold_fails_the_page(bad: Block, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ValueError)):
        Player(tmp_path).play(bad)


def test_a_drawing_is_not_typed(tmp_path: Path) -> None:
    player = Player(tmp_path)
    player.play(block("", "task ──► window ──► output\n"))
    player.play(block("ts", "let shown = 1;\n", mark="figure"))
    assert player.played == 0


def test_another_terminal_knows_the_folder_and_nothing_that_was_exported(tmp_path: Path) -> None:
    player = Player(tmp_path, clone=True)
    player.play(
        block("sh", 'mkdir deep && cd deep\nexport WORD=tide PATH="$PWD/../.venv/bin:$PATH"\nforestay version\n')
    )
    player.play(block("sh", "echo ${WORD-nothing} $(basename $PWD)\n", mark="another terminal"))
    assert player.said == "nothing deep\n"
    player.play(block("sh", "command -v forestay  # exit 1\n"))
    player.close()


def test_blocks_follow_each_other(tmp_path: Path) -> None:
    player = Player(tmp_path)
    for item in (
        block("sh", "mkdir deep && cd deep\nWORD=tide\n"),
        block("markdown", "# Tides\n", title="notes/tides.md"),
        block("console", "$ cat notes/tides.md; echo $WORD\n# Tides\ntide\n"),
        block("sh", "exit_with() { return 4; }\nexit_with  # exit 4\n"),
        block("python", "x = 1\nprint('first')\n"),
        block("python", "print('second', x)\n"),
        block("text", "sec… 1\n"),
    ):
        player.play(item)
    assert player.said == "second 1\n"
    with pytest.raises(AssertionError):
        expect("first", player.said)
    player.close()
