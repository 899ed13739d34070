"""The program: takes the LAFS flags out of the arguments, loads the one module that is needed, runs it."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from forestay.cli import output, overview
from forestay.cli.commands import COMMANDS, GROUPS
from forestay.kernel import Problem, former


def run(arguments: list[str]) -> int:
    try:
        rest = output.take_flags(arguments)
        if overview.is_asked_for(rest):
            sys.stdout.write(overview.page())
            return 0
        if rest[:1] == ["--version"]:
            rest[0] = "version"
        completing = _completed_words()
        if not completing:
            _take_over(rest)
        program = build(completing or rest)
        result = program(args=rest, prog_name="forestay", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except typer.Exit as leave:
        return leave.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except typer.TyperException as error:
        if _asks_for_help(error) and output.choice().format == "human":
            sys.stdout.write(overview.page() if not rest else error.format_message() + "\n")
            return _usage(error).exit_code
        return output.fail("cli", _usage(error))
    except Problem as problem:
        return output.fail("cli", problem)


def _completed_words() -> list[str]:
    """Return the words to complete: bash gives them in COMP_WORDS, other shells in _TYPER_COMPLETE_ARGS."""
    if "_FORESTAY_COMPLETE" not in os.environ:
        return []
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        return shlex.split(typed)[1:]
    except ValueError:  # a quote is still open
        return typed.split()[1:]


def _take_over(arguments: Sequence[str]) -> None:
    """Adopt the variables and the folder that 0.1 left here under its name, and say so; `doctor` only looks."""
    for name, text in former.environment(os.environ).items():
        os.environ[name] = text
        output.note(f"{name} is not set, so {former.variable(name)} is read in its place: rename it.")
    only_looks = arguments[:1] in ([], ["doctor"], ["version"]) or {"-h", "--help"} & set(arguments)
    if not only_looks and former.adopt(Path()):
        output.note(f"{former.FORMER_FOLDER} is {former.FOLDER} now: the project was renamed.")


def build(arguments: Sequence[str]) -> typer.Typer:
    """Build the program with every command's name, and load only the command that `arguments` call."""
    program = typer.Typer(
        name="forestay",
        help=overview.HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    wanted = next((word for word in arguments if not word.startswith("-")), "")
    for name, entry in sorted({**GROUPS, **COMMANDS}.items()):
        if name != wanted:
            program.command(name, help=entry.help)(_placeholder)
        elif name in GROUPS:
            program.add_typer(importlib.import_module(entry.module).app.typer, name=name, help=entry.help)
        else:
            program.command(name, help=entry.help)(getattr(importlib.import_module(entry.module), name))
    return program


def _placeholder() -> None:
    """Stand in for a command whose module is not loaded."""


def _asks_for_help(error: typer.TyperException) -> bool:
    """Whether neither a command nor an option was given: then the message is the help."""
    message = error.format_message()
    return not message or message.startswith("Usage: ")


def _usage(error: typer.TyperException) -> Problem:
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "forestay"
    message = "A command is missing." if _asks_for_help(error) else error.format_message()
    return Problem("invalid_usage", message, fix=f"Run `{where} --help`.")
