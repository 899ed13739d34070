"""Prints the answer of a command: one envelope for programs, text for people (LAFS R3 to R11, D11)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from forestay import envelope
from forestay.kernel import Ids, Problem, SystemClock, canonical, config, one_line, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Answer(msgspec.Struct, frozen=True):
    """A result, and how a person sees it: lines of text or a function that draws it; by default, indented text.

    With `problem`, the command failed, and `result` is what it has nevertheless.
    """

    result: Any = None
    human: Iterable[str | Text] | Callable[[Console], None] | None = None
    problem: Problem | None = None
    page: envelope.Page | None = None
    warnings: Sequence[envelope.Warning] = ()


class _Flags(msgspec.Struct):
    human: bool = False
    json: bool = False
    quiet: bool = False
    field: str | None = None
    fields: list[str] = []
    mvi: str | None = None


_STYLE = re.compile(r"\x1b\[[0-9;]{0,32}m")
_SWITCHES = {"--human": "human", "--json": "json", "--quiet": "quiet"}
_VALUES = {"--field": "field", "--fields": "fields", "--mvi": "mvi"}
_flags = _Flags()


def take_flags(arguments: Sequence[str]) -> list[str]:
    """Remember the LAFS flags, wherever they stand before `--`, and return the other arguments."""
    global _flags
    _flags = _Flags()
    rest: list[str] = []
    pending = iter(arguments)
    for word in pending:
        name, equals, value = word.partition("=")
        if word == "--":
            rest.extend([word, *pending])
        elif word in _SWITCHES:
            setattr(_flags, _SWITCHES[word], True)
        elif name in _VALUES:
            text = value if equals else next(pending, None)
            if text is None:
                raise Problem("invalid_usage", f"{name} needs a value.", at=name)
            setattr(_flags, _VALUES[name], text.split(",") if name == "--fields" else text)
        else:
            rest.append(word)
    choice()  # report a conflict before the command does anything
    return rest


def choice() -> envelope.OutputChoice:
    """Return the output that the flags, the configuration and the terminal choose together."""
    format, of_project = _configured_format()
    return envelope.resolve(
        human=_flags.human,
        json=_flags.json,
        quiet=_flags.quiet,
        field=_flags.field,
        fields=_flags.fields,
        mvi=_flags.mvi,
        tty=sys.stdout.isatty(),
        project_format=format if of_project else None,
        user_format=None if of_project else format,
    )


def _configured_format() -> tuple[str | None, bool]:
    """Return the configured format, and whether the project (or the environment) set it, not the user.

    A broken configuration file must not stop a command from reporting it.
    """
    try:
        loaded = config.load()
    except Problem:
        return None, False
    return loaded.config.output.format, loaded.sources.get("output.format") != "user file"


def say(operation: str, answer: Answer) -> int:
    """Print an answer in the chosen form and return the exit code."""
    chosen = choice()
    for warning in chosen.warnings:
        note(warning.message)
    if chosen.field is not None and (answer.problem is None or answer.result is not None):
        _print_field(answer.result, chosen.field)
        if answer.problem is not None:
            _print_problem(answer.problem)
    elif chosen.format == "human":
        _print_human(answer, chosen)
    else:
        _print_envelope(operation, answer, chosen)
    return answer.problem.exit_code if answer.problem is not None else 0


def fail(operation: str, problem: Problem) -> int:
    """Print a Problem and return its exit code."""
    try:
        return say(operation, Answer(problem=problem))
    except Problem as conflict:  # the flags themselves are the problem: programs get JSON
        document = envelope.failure(conflict, operation, transport="cli", clock=SystemClock(), ids=Ids())
        _write(envelope.encode(document) + b"\n")
        return conflict.exit_code


def note(text: str) -> None:
    """Write a line for the person at the terminal, never for the program that reads stdout."""
    if not _flags.quiet:
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()


def console(*, stderr: bool = False) -> Console:
    """Return a rich console that respects NO_COLOR and pipes, and escapes control characters."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Plain(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for part in super().render(renderable, options):
                yield part if part.control else Segment(printable(part.text), part.style)

    return Plain(stderr=stderr, highlight=False, soft_wrap=True)


def _print_envelope(operation: str, answer: Answer, chosen: envelope.OutputChoice) -> None:
    common: dict[str, Any] = {"transport": "cli", "clock": SystemClock(), "ids": Ids(), "warnings": answer.warnings}
    if answer.problem is not None:
        document = envelope.failure(answer.problem, operation, result=answer.result, **common)
    else:
        document = envelope.success(operation, answer.result, page=answer.page, **common)
    if chosen.fields:
        document = envelope.select_fields(document, chosen.fields)
    if chosen.mvi_source == "flag":
        _write(canonical.encode(envelope.project(document, chosen.mvi)) + b"\n")
    else:
        _write(envelope.encode(document) + b"\n")


def _print_field(result: Any, name: str) -> None:
    value = envelope.select_field(msgspec.to_builtins(result), name)
    if isinstance(value, str) and sys.stdout.isatty():
        value = printable(value)
    _write((value.encode() if isinstance(value, str) else msgspec.json.encode(value)) + b"\n")


def _print_human(answer: Answer, chosen: envelope.OutputChoice) -> None:
    if callable(answer.human):
        answer.human(console())
    elif answer.human is not None:
        screen = console()
        for line in answer.human:
            screen.print(line, markup=False)
    elif answer.result is not None:
        plain = msgspec.to_builtins(answer.result)
        if chosen.fields and isinstance(plain, dict):
            plain = {name: plain[name] for name in chosen.fields if name in plain}
        _print_plain(plain)
    if answer.problem is not None:
        _print_problem(answer.problem)


def _print_plain(value: Any, indent: str = "") -> None:
    """Print any JSON value as indented text."""
    out = sys.stdout
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                out.write(f"{indent}{one_line(key)}:\n")
                _print_plain(item, indent + "  ")
            else:
                out.write(f"{indent}{one_line(key)}: {_scalar(item)}\n")
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list) and item:
                out.write(f"{indent}-\n")
                _print_plain(item, indent + "  ")
            else:
                out.write(f"{indent}- {_scalar(item)}\n")
    else:
        out.write(f"{indent}{_scalar(value)}\n")


def _scalar(value: Any) -> str:
    return printable(value if isinstance(value, str) else msgspec.json.encode(value).decode())


_SAID_WHOLE = ("capability_denied",)
"""Problems whose message is enough for a person; their details are for programs."""


def _print_problem(problem: Problem) -> None:
    error = problem.as_lafs()
    hidden = error["details"].keys() - {"at"} if problem.key in _SAID_WHOLE else {"problem", "fix"}
    details = {key: value for key, value in error["details"].items() if key not in hidden}
    lines = [f"Problem: {printable(error['message'])}"]
    for key, value in details.items():
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            lines.extend([f"  {key}:", *(f"    {printable(item)}" for item in value)])
        elif value is not None:
            lines.append(f"  {key}: {_scalar(value)}")
    lines.append(f"  What to do: {printable(error['suggestedAction'])}")
    lines.append(f"  ({problem.key}; `forestay problems {problem.key}` explains)")
    sys.stderr.write("\n".join(lines) + "\n")


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
