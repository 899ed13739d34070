"""`forestay --help` tells every command and option, at any width, and is one page however it is asked for."""

from __future__ import annotations

import pytest
import typer

from forestay.cli import main, output, overview, program
from forestay.cli.commands import COMMANDS, GROUPS


def test_every_command_is_told_whole_and_in_order() -> None:
    listed = overview.page(1000).split("Commands:\n")[1].splitlines()
    entries = sorted({**GROUPS, **COMMANDS}.items())
    told = " ".join(" ".join(listed).split())
    assert told == " ".join(f"{name} {entry.help}" for name, entry in entries)


def test_the_options_are_those_of_the_program() -> None:
    command = typer.main.get_command(program.build([]))
    names = {
        name
        for option in command.get_params(typer.Context(command, **command.context_settings))
        for name in option.opts
    }
    told = overview.page().split("Options:\n")[1].split("\n\n")[0]
    assert {word.rstrip(",") for word in told.split() if word.startswith("-")} == names


@pytest.mark.parametrize("width", [10, 50, 63, 80, 300])
def test_no_line_is_wider_than_the_terminal_that_can_hold_a_page(width: int) -> None:
    assert max(map(len, overview.page(width).splitlines())) <= max(48, min(78, width - 2))


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--human", "--help"], ["--human"]])
def test_it_is_one_page(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_flags", output._Flags())  # a run remembers its flags
    code = main.run(arguments)
    assert capsys.readouterr().out == overview.page()
    assert code == (0 if arguments[-1] in ("-h", "--help") else 2)


@pytest.mark.parametrize("columns", ["", "none", "40"])
def test_the_width_is_the_terminals(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert overview.page() == overview.page(40 if columns == "40" else 80)
