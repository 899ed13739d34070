"""Shows a model's text as it comes.

S1  A terminal with more than plain text shows Markdown: each paragraph, list or block of code when it is whole.
S2  Elsewhere the text is written as it comes, unchanged except for control characters.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import TextIO

from forestay.kernel import printable

_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
_BREAK = re.compile(r"\n[ \t]*\n")


class SpokenText:
    """Writes the text of one answer to `out`, by default the standard output."""

    def __init__(
        self, out: TextIO | None = None, *, rich: bool | None = None, before: Callable[[], None] = lambda: None
    ) -> None:
        """`before` is called before each write."""
        self._before = before
        self._out = sys.stdout if out is None else out
        self._rich = shows_more(self._out) if rich is None else rich
        self._waiting = ""
        self._open = False

    def say(self, chunk: str) -> None:
        """Show the next piece of the answer."""
        if self._rich:
            self._waiting += chunk
            blocks, self._waiting = whole_blocks(self._waiting)
            for block in blocks:
                self._show(block)
        else:
            self._before()
            self._out.write(printable(chunk))
            self._open = not chunk.endswith("\n")
        self._out.flush()

    def end(self) -> None:
        """Show what still waits, and end the line: nothing more comes for now."""
        if self._waiting.strip():
            self._show(self._waiting)
        if self._open:
            self._before()
            self._out.write("\n")
            self._out.flush()
        self._waiting, self._open = "", False

    def _show(self, block: str) -> None:
        from rich.console import Console
        from rich.markdown import Markdown

        # Show a link's address beside its text: a terminal would hide it behind the text.
        shown = Markdown(printable(block), hyperlinks=False)
        console = Console(file=self._out, highlight=False)
        with console.capture() as caught:
            console.print(shown)
        self._before()
        self._out.write("".join(f"{line.rstrip()}\n" for line in caught.get().splitlines()))  # rich pads each line


def shows_more(out: TextIO) -> bool:
    """Whether `out` is a terminal with bold type and the like."""
    return out.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def whole_blocks(text: str) -> tuple[list[str], str]:
    """Return the complete blocks of Markdown, and the rest; a block ends at an empty line outside code."""
    blocks: list[str] = []
    begun = 0
    for found in _BREAK.finditer(text):
        if len(_FENCE.findall(text, begun, found.start())) % 2 == 0:
            blocks.append(text[begun : found.end()])
            begun = found.end()
    return [block for block in blocks if block.strip()], text[begun:]
