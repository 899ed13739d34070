"""What a shell is offered while somebody types: every level, in every shell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forestay.cli.commands import GROUPS
from tests.forked import forestay


def offered(folder: Path, line: str, shell: str = "bash") -> list[str]:
    """The words that completion offers at the end of `line`, asked as the shell's own script asks."""
    words = line.split(" ")
    typed = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    asked = {**os.environ, "_FORESTAY_COMPLETE": f"complete_{shell}", **typed}
    done = forestay(folder, environ=asked)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_first_level_offers_every_command(tmp_path: Path) -> None:
    assert set(GROUPS) <= set(offered(tmp_path, "forestay "))
    assert offered(tmp_path, "forestay ru") == ["run"]


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_below_each_group_its_commands_are_offered(tmp_path: Path, group: str) -> None:
    found = offered(tmp_path, f"forestay {group} ")
    assert found, group
    assert "--help" in offered(tmp_path, f"forestay {group} {found[0]} --")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_offered_the_second_level(tmp_path: Path, shell: str) -> None:
    said = " ".join(offered(tmp_path, "forestay ledger ver", shell))
    assert "verify" in said and "export" not in said


def test_options_of_a_command_are_offered(tmp_path: Path) -> None:
    assert offered(tmp_path, "forestay run approve --re") == ["--reject", "--remember"]
    assert "--show-key" in offered(tmp_path, "forestay up --")


def test_an_open_quote_is_no_error(tmp_path: Path) -> None:
    assert isinstance(offered(tmp_path, "forestay run start 'an op"), list)
