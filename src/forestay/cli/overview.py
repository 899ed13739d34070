"""The page of `forestay --help`: every command in one line, without loading any of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from forestay.cli.commands import COMMANDS, GROUPS

HELP = """An agent host that you can trust with other people's code.

Every command also takes --json, --human, --quiet, --field NAME, --fields A,B and --mvi LEVEL: on a terminal it
speaks to people, piped it prints one LAFS envelope. `forestay --version` is `forestay version`.
"""
_OPTIONS = {
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the installation.",
    "-h, --help": "Show this message and exit.",
}
_WIDEST, _NARROWEST = 78, 48


def is_asked_for(arguments: Sequence[str]) -> bool:
    return list(arguments) in (["-h"], ["--help"])


def page(width: int | None = None) -> str:
    """Return the page for `width` columns; by default those of the terminal."""
    room = max(_NARROWEST, min(_WIDEST, (_columns() if width is None else width) - 2))
    lines = ["Usage: forestay [OPTIONS] COMMAND [ARGS]...", ""]
    for paragraph in HELP.strip().split("\n\n"):
        lines += [f"  {line}" for line in _wrapped(paragraph, room - 2)] + [""]
    commands = {name: entry.help for name, entry in sorted({**GROUPS, **COMMANDS}.items())}
    lines += ["Options:", *_listed(_OPTIONS, room), "", "Commands:", *_listed(commands, room)]
    return "\n".join(lines) + "\n"


def _columns() -> int:
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):  # no terminal, or no number
        return 80


def _listed(rows: Mapping[str, str], room: int) -> Iterator[str]:
    indent = 4 + max(map(len, rows))
    for name, text in rows.items():
        first, *others = _wrapped(text, room - indent)
        yield f"  {name}".ljust(indent) + first
        yield from (" " * indent + line for line in others)


def _wrapped(text: str, room: int) -> list[str]:
    """Wrap `text` to lines of at most `room` characters; a longer word has a line of its own."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines
