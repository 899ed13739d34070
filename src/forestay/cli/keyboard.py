"""Reads what a person types: one reader for the prompt, for questions of the host and for dialogs.

B1  One question stands at a time, and its answer goes to its asker. Of those that wait, a question of the host comes
    first, then the conversation, then extensions.
B2  A line that was begun for one asker does not answer another one, and the person is told. A line that was begun for
    the conversation comes back as its next draft. A line that was begun for a question that is gone goes to the
    conversation, so that no typed text is lost.
B3  Text that was typed before a question of the host appeared does not answer it.
B4  Input that has ended stays ended: a later asker gets None at once.
B5  Keys for a component are read one by one and not echoed. When no component waits for them, the next key begins the
    next line.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import queue
import select
import sys
import termios
import threading
import tty
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple

CONVERSATION, HOST = "", "host:"
"""Who asks for a line: the conversation, the host, or an extension by its name, which has no colon at its end."""
_MOST_KEYS = 4096
_RANKS = {HOST: 0, CONVERSATION: 1}
_BEGUN_BEFORE = "That line was begun before this question: it is no answer to it.\n"


class _Turns:
    """Gives turns to askers, one at a time: the lowest rank first, within a rank the first to come (B1)."""

    def __init__(self) -> None:
        self.taken = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    @asynccontextmanager
    async def turn(self, rank: int) -> AsyncIterator[None]:
        if self.taken:
            await self._called(rank)
        self.taken = True
        try:
            yield
        finally:
            self._next()

    async def _called(self, rank: int) -> None:
        self._count += 1
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, self._count, called))
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():  # its turn had come: pass it on
                self._next()
            raise

    def _next(self) -> None:
        while self._waiting:
            called = heapq.heappop(self._waiting)[2]
            if not called.done():
                called.set_result(None)
                return
        self.taken = False


class _Wanted(NamedTuple):
    """A line, or a key, that the thread waits for."""

    asker: str
    prompt: str
    draft: str
    answer: asyncio.Future[str | None]
    is_key: bool = False


class Keyboard:
    """Reads lines of standard input on its own thread: an event loop cannot wait for an edited line."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        self.words = words
        """Words that the tab key completes at the beginning of a line."""
        self.suggest: Callable[[str, str], Sequence[str]] = lambda _line, _word: ()
        """Gives more completions of a line's last word; called on the keyboard's own thread."""
        self.on_line: Callable[[], None] = lambda: None
        """Called before each prompt."""
        self._bind: Callable[[str], None] | None = None
        self._line: Callable[[], str] = lambda: ""
        self._found: Sequence[str] = ()
        self.insert: Callable[[str], None] | None = None
        """Puts a text into the next line; None where lines cannot be edited."""
        self.drawing = threading.Lock()
        """Held while readline draws a prompt: writers take it, so that they never write into a prompt."""
        self.tells_drawn = False
        """Whether `drawn` is called when a prompt stands."""
        self._draws = False
        self._wanted: queue.SimpleQueue[_Wanted] = queue.SimpleQueue()
        self._pending: _Wanted | None = None
        self._is_over = False
        self._left = ""  # text typed for the conversation while another question stood
        self._called_off, self._call_off = os.pipe()
        self._cooked: list[Any] | None = None  # the terminal's settings before keys were read one by one
        self._turns = _Turns()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, daemon=True, name="keyboard").start()

    @property
    def busy(self) -> bool:
        """Whether an asker already waits for a line."""
        return self._turns.taken

    async def line(
        self, prompt: str, shown: Callable[[], str] = str, draft: str = "", asker: str = CONVERSATION
    ) -> str | None:
        """Return the next line after `prompt`, or None at the end of input (B1).

        The text of `shown`, called when the turn comes, stands before the prompt. The line begins with `draft`, which
        the person may change. All three must be safe for a terminal.
        """
        async with self._turns.turn(_RANKS.get(asker, len(_RANKS))):
            if self._is_over:  # B4
                return None
            self.on_line()
            before = shown()
            sys.stdout.write(f"\n{before}" if before and self._pending is not None else before)
            sys.stdout.flush()
            while True:
                wanted = self._begun(asker, prompt, draft)
                answer = await asyncio.shield(wanted.answer)
                self._pending, self._is_over = None, answer is None
                if answer is None or asker in (wanted.asker, CONVERSATION):
                    return answer
                self._put_aside(wanted, answer)

    async def key(self, shown: Callable[[], None], asker: str) -> str | None:
        """Return the next keys for a component of `asker`, which `shown` draws; None at the end of input (B5)."""
        async with self._turns.turn(_RANKS.get(asker, len(_RANKS))):
            while self._pending is not None:  # a line that was begun earlier comes first
                begun = self._pending
                answer = await asyncio.shield(begun.answer)
                self._pending, self._is_over = None, answer is None
                if answer is not None:
                    self._put_aside(begun, answer)
            if self._is_over:
                return None
            shown()
            wanted = _Wanted(asker, "", "", self._loop.create_future(), is_key=True)
            self._wanted.put(wanted)
            try:
                pressed = await wanted.answer
            except asyncio.CancelledError:
                os.write(self._call_off, b".")
                raise
            self._is_over = pressed is None
            return pressed

    def _begun(self, asker: str, prompt: str, draft: str) -> _Wanted:
        """Return the line that the person is typing; begin one for this asker when there is none."""
        if self._pending is not None:
            sys.stdout.write(prompt)
            sys.stdout.flush()
            return self._pending
        if asker == CONVERSATION:
            draft, self._left = draft or self._left, ""
        self._pending = _Wanted(asker, prompt, draft, self._loop.create_future())
        self._wanted.put(self._pending)
        return self._pending

    def _put_aside(self, begun: _Wanted, line: str) -> None:
        """Keep a line that was begun for another asker, and tell the person (B2)."""
        if begun.asker == CONVERSATION:
            self._left = line
        sys.stdout.write(_BEGUN_BEFORE)
        sys.stdout.flush()

    def _read(self) -> None:
        while True:
            asker, prompt, draft, answer, is_key = self._wanted.get()
            try:
                if is_key:
                    self._give_key(answer)
                    continue
                self.cook()
                if asker == HOST:
                    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # B3
                if draft and self.insert is None:
                    sys.stdout.write(f"draft  {draft}\n")
                elif self.insert is not None:
                    self.insert(draft)
                if self.tells_drawn:
                    self._draws = self.drawing.acquire()
                line: str | None = input(prompt)
            except (EOFError, OSError, ValueError, termios.error):  # the terminal or the input has ended
                line = None
            finally:
                self.drawn()
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(_give, answer, line)
            if line is None:
                return

    def drawn(self) -> None:
        """The prompt stands; called on the keyboard's own thread."""
        if self._draws:
            self._draws = False
            self.drawing.release()

    def _give_key(self, answer: asyncio.Future[str | None]) -> None:
        """Read a key and hand it over; return without one when its asker gives up (B5)."""
        source = sys.stdin.fileno()
        if self._cooked is None:
            self._cooked = termios.tcgetattr(source)
            tty.setcbreak(source, termios.TCSADRAIN)
            single = termios.tcgetattr(source)
            single[0] &= ~termios.ICRNL  # components expect the enter key as a return
            termios.tcsetattr(source, termios.TCSADRAIN, single)
        while self._called_off in select.select([source, self._called_off], [], [])[0]:
            os.read(self._called_off, 1)
            if answer.cancelled():
                return
        pressed = os.read(source, _MOST_KEYS).decode("utf-8", "replace")
        if not pressed:
            raise EOFError
        self._loop.call_soon_threadsafe(_give, answer, pressed)

    def cook(self) -> None:
        """Restore the terminal's line mode and echo after keys were read one by one."""
        if self._cooked is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._cooked)
            self._cooked = None

    def complete(self, text: str, state: int) -> str | None:
        if state == 0:
            line = self._line()
            words = [word for word in self.words if word.startswith(text)] if line.strip() == text else []
            self._found = [*words, *self.suggest(line, text)]
        return self._found[state] if state < len(self._found) else None

    def use(self, line: Callable[[], str], bind: Callable[[str], None] | None) -> None:
        """Edit lines with these functions: `line` returns the current text, `bind` binds a key."""
        self._line = line
        if bind is not None:
            self._bind = bind

    def bind(self, bindings: Iterable[str]) -> None:
        """Add key bindings of readline, where lines are edited with it."""
        if self._bind is not None:
            for binding in bindings:
                self._bind(binding)


def _give(answer: asyncio.Future[str | None], line: str | None) -> None:
    if not answer.done():
        answer.set_result(line)


@contextmanager
def edited_lines(keyboard: Keyboard) -> Iterator[None]:
    """Turn on editing, history and completion where Python has readline; restore the terminal afterwards."""
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
        if hasattr(readline, "set_pre_input_hook"):
            readline.set_pre_input_hook(keyboard.drawn)
            keyboard.tells_drawn = True
        is_gnu = "libedit" not in (readline.__doc__ or "")
        keyboard.use(readline.get_line_buffer, readline.parse_and_bind if is_gnu else None)
        keyboard.insert = lambda draft: readline.set_startup_hook(
            (lambda: readline.insert_text(draft)) if draft else None
        )
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
