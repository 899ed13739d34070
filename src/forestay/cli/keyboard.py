"""What a person types, line by line: one reader for the prompt, for questions of the host and for dialogs.

B1  One question stands at a time, and nobody's answer is another's. Of those that wait, a question of the host comes
    first, then the conversation, then extensions.
B2  A line that was begun for one asker is no answer to a question of another one, and the person is told. What was
    begun for the conversation comes back as its next draft. The conversation takes what was begun for a question that
    is gone: what was typed is not lost.
B3  What was typed before a question of the host stood there is no answer to it.
B4  Input that has ended stays ended: who asks later is told so at once.
B5  Keys for a component are taken one by one and not shown. When nobody waits for them any more, the next key is the
    first of the next line.
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
    """Who may ask now: one at a time, of those that wait the lowest rank, of one rank the first (B1)."""

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
            if called.done() and not called.cancelled():  # it was its turn: the next one has it
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
    """A line that the thread waits for."""

    asker: str
    prompt: str
    draft: str
    answer: asyncio.Future[str | None]
    is_key: bool = False


class Keyboard:
    """Lines of standard input. A thread of its own waits for them: a loop cannot wait for an edited line."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        self.words = words
        """What a line may begin with: completed with the tab key."""
        self.suggest: Callable[[str, str], Sequence[str]] = lambda _line, _word: ()
        """More completions of the last word of a line; asked on the keyboard's own thread."""
        self.on_line: Callable[[], None] = lambda: None
        """Hears that a line is asked for."""
        self._bind: Callable[[str], None] | None = None
        self._line: Callable[[], str] = lambda: ""
        self._found: Sequence[str] = ()
        self.insert: Callable[[str], None] | None = None
        """Puts a text into the line that is begun next, where lines can be edited."""
        self._wanted: queue.SimpleQueue[_Wanted] = queue.SimpleQueue()
        self._pending: _Wanted | None = None
        self._is_over = False
        self._left = ""  # what was typed for the conversation while something else was asked
        self._called_off, self._call_off = os.pipe()
        self._cooked: list[Any] | None = None  # how the terminal was before keys were taken one by one
        self._turns = _Turns()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, daemon=True, name="keyboard").start()

    @property
    def busy(self) -> bool:
        """Whether somebody waits for a line already."""
        return self._turns.taken

    async def line(
        self, prompt: str, shown: Callable[[], str] = str, draft: str = "", asker: str = CONVERSATION
    ) -> str | None:
        """The next line after `prompt`; what `shown` gives when its turn has come stands before it. None: the input
        ended (B1).

        The line begins with `draft`, for the person to change. All are text that a terminal may show.
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
        """What a person presses next, for a component of `asker` that `shown` shows; None: the input ended (B5)."""
        async with self._turns.turn(_RANKS.get(asker, len(_RANKS))):
            while self._pending is not None:  # a line that was begun before is finished first
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
        """The line that the person is at; when there is none, one for this asker begins."""
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
        """A line that came for another asker than it was begun for (B2)."""
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
                line: str | None = input(prompt)
            except (EOFError, OSError, ValueError, termios.error):  # the terminal is gone, or the person ended it
                line = None
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(_give, answer, line)
            if line is None:
                return

    def _give_key(self, answer: asyncio.Future[str | None]) -> None:
        """Wait for a key, or until nobody waits for it (B5)."""
        source = sys.stdin.fileno()
        if self._cooked is None:
            self._cooked = termios.tcgetattr(source)
            tty.setcbreak(source, termios.TCSADRAIN)
            single = termios.tcgetattr(source)
            single[0] &= ~termios.ICRNL  # the enter key is a return, as components expect it
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
        """Show what is typed again, if keys were taken one by one."""
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
        """Edit lines with this: what stands in the line, and how a key is bound."""
        self._line = line
        if bind is not None:
            self._bind = bind

    def bind(self, bindings: Iterable[str]) -> None:
        """Take in key bindings of readline, where lines are edited with it."""
        if self._bind is not None:
            for binding in bindings:
                self._bind(binding)


def _give(answer: asyncio.Future[str | None], line: str | None) -> None:
    if not answer.done():
        answer.set_result(line)


@contextmanager
def edited_lines(keyboard: Keyboard) -> Iterator[None]:
    """Editing, history and completion where the machine has them; the terminal is left as it was found."""
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
        is_gnu = "libedit" not in (readline.__doc__ or "")
        keyboard.use(readline.get_line_buffer, readline.parse_and_bind if is_gnu else None)
        keyboard.insert = lambda draft: readline.set_startup_hook(
            (lambda: readline.insert_text(draft)) if draft else None
        )
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
