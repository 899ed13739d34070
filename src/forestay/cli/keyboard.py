"""What a person types, line by line: one reader for the prompt, for questions of the host and for dialogs.

B1  One question stands at a time; the others wait for their turn, and nobody's answer is another's.
B2  A reader that stops waiting leaves the line to the next one: what was typed is not lost.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress


class Keyboard:
    """Lines of standard input. A thread of its own waits for them: a loop cannot wait for an edited line."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        self.words = words
        """What a line may begin with: completed with the tab key."""
        self.insert: Callable[[str], None] | None = None
        """Puts a text into the line that is begun next, where lines can be edited."""
        self._wanted: queue.SimpleQueue[tuple[str, str, asyncio.Future[str | None]]] = queue.SimpleQueue()
        self._pending: asyncio.Future[str | None] | None = None
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, daemon=True, name="keyboard").start()

    @property
    def busy(self) -> bool:
        """Whether somebody waits for a line already."""
        return self._turn.locked()

    async def line(self, prompt: str, shown: str = "", draft: str = "") -> str | None:
        """The next line after `prompt`; `shown` stands before it, when its turn has come. None: the input ended (B1).

        The line begins with `draft`, for the person to change. All are text that a terminal may show.
        """
        async with self._turn:
            sys.stdout.write(shown)
            sys.stdout.flush()
            if self._pending is None:
                self._pending = self._loop.create_future()
                self._wanted.put((prompt, draft, self._pending))
            else:  # B2
                sys.stdout.write(prompt)
                sys.stdout.flush()
            answer = await asyncio.shield(self._pending)
            self._pending = None
            return answer

    def _read(self) -> None:
        while True:
            prompt, draft, answer = self._wanted.get()
            try:
                if draft and self.insert is None:
                    sys.stdout.write(f"draft  {draft}\n")
                elif self.insert is not None:
                    self.insert(draft)
                line: str | None = input(prompt)
            except (EOFError, OSError, ValueError):  # the terminal is gone, or the person ended it
                line = None
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(_give, answer, line)
            if line is None:
                return

    def complete(self, text: str, state: int) -> str | None:
        found = [word for word in self.words if word.startswith(text)]
        return found[state] if state < len(found) else None


def _give(answer: asyncio.Future[str | None], line: str | None) -> None:
    if not answer.done():
        answer.set_result(line)


@contextmanager
def edited_lines(keyboard: Keyboard) -> Iterator[None]:
    """Editing, history and completion where the machine has them; the terminal is left as it was found."""
    import termios

    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        import readline
    except ImportError:  # a Python without it reads plain lines
        readline = None  # type: ignore[assignment]
    if readline is not None:
        readline.set_completer(keyboard.complete)
        readline.set_completer_delims(" ")
        readline.parse_and_bind("tab: complete")
        readline.parse_and_bind("set enable-bracketed-paste off")
        keyboard.insert = lambda draft: readline.set_startup_hook(
            (lambda: readline.insert_text(draft)) if draft else None
        )
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
