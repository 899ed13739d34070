"""The user interface of extensions in a chat: notices, a status line, widgets, dialogs.

G1  Every line that an extension shows begins with its name in brackets; no line of the host does. Control characters
    are spelled out, lines are cut, and their number is limited.
G2  Between two lines of the person an extension may show NOTICES notices and ask DIALOGS questions. The chat counts and
    reports the rest; it answers a question beyond the limit as cancelled.
G3  A dialog never takes the line that the person is typing: it is announced, and asked after that line.
G4  When the person cancels the current work, its questions are cancelled: those that are open, and those that come
    until new work begins.
G5  A component has the keys while it is shown, and is redrawn in its place unless something was shown below it since.
    Continuing after a person's keys does not count as another question. Ctrl-C always ends it. A terminal that can
    only write lines takes the names of keys.
G6  A progress line stands at the end of the screen while an agent works, and moves as its extension wants. It gives
    way to all other output and to a prompt, and disappears when the work ends.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from forestay.cli.keyboard import Keyboard
from forestay.cli.spoken_text import shows_more
from forestay.extensions import FORMS, KEYS, USUAL_MS, WORKING, Working, checked_answer
from forestay.kernel import canonical, one_line

NOTICES, DIALOGS = 20, 10
_LINES, _WIDTH, _OPTIONS, _MOVING = 20, 400, 50, 5
_NARROWEST = 20
_KEY = re.compile(r"\x1b\[[0-9;?<]*[ -/]*[@-~]|\x1bO.|\x1b[^\x1b]?|.", re.DOTALL)
_PLACES = {"setWidget": "lines", "setHeader": "lines", "setFooter": "lines"}


class _Canvas:
    """A component on the screen: its `height` lines stand at the end and can be drawn over; 0 when they cannot."""

    def __init__(self, extension: str, component: Any) -> None:
        self.extension = extension
        self.component = component
        self.height = 0
        self.is_open = False
        self.has_keys = False

    def is_of(self, extension: str, params: Mapping[str, Any]) -> bool:
        return self.component is not None and (self.extension, self.component) == (extension, params.get("component"))

    def goes_on(self, extension: str, params: Mapping[str, Any]) -> bool:
        """Whether this request continues the component after the person's keys; true once per key."""
        had, self.has_keys = self.has_keys and self.is_of(extension, params), False
        return had


class ChatUi:
    """`extensions.Ui` for a person in a conversation at a terminal."""

    interactive = True
    colour = False
    color_mode: Literal["truecolor", "256color"] = "256color"

    def __init__(self, keyboard: Keyboard) -> None:
        self._keyboard = keyboard
        keyboard.on_line = self.moved
        self._shown: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._standing: dict[tuple[str, str], list[str]] = {}  # lines that stay, by extension and place
        self._open: set[asyncio.Future[Any]] = set()
        self._given_up = False
        self._working: defaultdict[str, Working] = defaultdict(Working)
        self._moving: asyncio.Task[None] | None = None  # draws the progress lines (G6)
        self._moving_height = 0
        self._canvas: _Canvas | None = None  # the last component that had the keys
        self._told: dict[tuple[str, str], list[str]] = {}  # `_standing` as it was shown last
        self.draft = ""
        """The text that the next line begins with."""
        self.drafted = False
        """Whether an extension wrote the draft."""
        self.end_line: Callable[[], None] = lambda: None
        """Ends the line of the current output, so that an extension's line begins on its own (G1)."""

    def columns(self, extension: str) -> int:
        """Return the width that is left beside the name of the extension (G1)."""
        return max(shutil.get_terminal_size().columns - _cells(marked(extension, "")), _NARROWEST)

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        ask = _DIALOGS.get(operation)
        if ask is None:
            return self._notice(extension, operation, params)
        if operation != "custom" or self._canvas is None or not self._canvas.goes_on(extension, params):
            self._asked[extension] += 1
        if self._asked[extension] > DIALOGS or self._given_up:
            return None  # G2, G4
        if self._keyboard.busy:
            self._say(extension, ["asks something; it comes after your line"])
        answer = asyncio.ensure_future(ask(self, extension, params))
        self._open.add(answer)
        try:
            await asyncio.wait({answer})
        finally:
            answer.cancel()  # the extension may no longer wait
            self._open.discard(answer)
        return None if answer.cancelled() else answer.result()

    def give_up(self) -> None:
        """Answer the open questions as cancelled: the person cancelled the work they belong to (G4)."""
        self._given_up = True
        for answer in self._open:
            answer.cancel()

    def begin(self) -> None:
        """Take questions again: new work begins."""
        self._given_up = False

    # Notices

    def _notice(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        if operation == "getEditorText":
            return self.draft
        if operation == "getStatuses":
            standing = {place: lines[0] for (_, place), lines in self._standing.items()}
            return {place[7:]: text for place, text in standing.items() if place.startswith("status:")}
        if operation == "redraw":
            if self._canvas is not None and self._canvas.is_open and self._canvas.is_of(extension, params):
                self._draw(self._canvas, params)
            return None
        if operation in ("setEditorText", "pasteToEditor"):
            text = str(params.get("text") or "")[: _WIDTH * _LINES]
            self.draft = self.draft + text if operation == "pasteToEditor" else text
            self.drafted = True
        elif operation == "setStatus":
            self._stand(extension, f"status:{params.get('key')}", [params["text"]] if params.get("text") else [])
        elif operation in _PLACES:
            self._stand(extension, f"{operation}:{params.get('key', '')}", params.get("lines") or [])
        elif operation in WORKING:
            line = self._working[extension].heard(operation, params)
            if line and not self._working[extension].lines:
                self._say(extension, [line])  # without several frames it does not move: say it in the chat
            elif line and not shows_more(sys.stdout):
                self._say(extension, [line])
        elif operation == "notify":
            mark = {"error": "error: ", "warning": "warning: "}.get(str(params.get("type")), "")
            self._say(extension, f"{mark}{params.get('message', '')}".split("\n"))
        return None

    def _stand(self, extension: str, place: str, lines: Iterable[Any]) -> None:
        shown, places = _cut(lines), sum(owner == extension for owner, _ in self._standing)
        if shown and (places < _LINES or (extension, place[:80]) in self._standing):
            self._standing[extension, place[:80]] = shown
        elif not shown:
            self._standing.pop((extension, place[:80]), None)

    def _say(self, extension: str, lines: Iterable[Any]) -> None:
        self._shown[extension] += 1
        if self._shown[extension] <= NOTICES:
            self.moved()
            self.end_line()
            with self._keyboard.drawing:
                sys.stdout.write("\n" if self._keyboard.busy else "")
                sys.stdout.write(_text(extension, _cut(lines)))
                sys.stdout.flush()

    def before_prompt(self) -> str:
        """Return the standing lines that changed, and how much was left out since the last line (G2)."""
        self.begin()
        fresh = {place: lines for place, lines in self._standing.items() if self._told.get(place) != lines}
        lines = [marked(extension, line) for (extension, _), shown in fresh.items() for line in shown][: 2 * _LINES]
        self._told = dict(self._standing)
        for counted, most, what in ((self._shown, NOTICES, "notices"), (self._asked, DIALOGS, "questions")):
            for extension, count in counted.items():
                if count > most:
                    lines.append(f"{count - most} more {what} of {one_line(extension)} were left out.")
            counted.clear()
        return "".join(f"{line}\n" for line in lines)

    # Dialogs

    async def _select(self, extension: str, params: Mapping[str, Any]) -> Any:
        options = [str(option) for option in params.get("options") or []][:_OPTIONS]
        numbered = [f"  {number}. {option}" for number, option in enumerate(options, 1)]
        answer = await self._line(extension, [params.get("title", ""), *numbered], f"1-{len(options)}, empty to cancel")
        return options[int(answer) - 1] if answer.isdecimal() and 1 <= int(answer) <= len(options) else None

    async def _confirm(self, extension: str, params: Mapping[str, Any]) -> Any:
        message = str(params.get("message") or "").split("\n")
        answer = await self._line(extension, [params.get("title", ""), *message], "yes or no")
        return answer.lower() in ("y", "yes")

    async def _input(self, extension: str, params: Mapping[str, Any]) -> Any:
        shown = [params.get("title", ""), *([params["placeholder"]] if params.get("placeholder") else [])]
        return await self._line(extension, shown, "one line, empty to cancel") or None

    async def _editor(self, extension: str, params: Mapping[str, Any]) -> Any:
        before = str(params.get("text") or "")
        shown = _text(extension, _cut([params.get("title", ""), *before.split("\n")], _OPTIONS))
        lines: list[str] = []
        prompt = marked(extension, "new text, a line with . ends it: ")
        while (line := await self._asked_for(extension, prompt, shown)) is not None:
            shown = ""
            if line == ".":
                return "\n".join(lines) if lines else before
            lines.append(line)
        return None

    async def _custom(self, extension: str, params: Mapping[str, Any]) -> Any:
        """Show a component and return the keys that the person presses for it (G5)."""
        if shows_more(sys.stdout):
            return await self._with_keys(extension, params)
        shown = _text(extension, _cut(params.get("lines") or [], _OPTIONS))
        prompt = marked(extension, f"keys ({', '.join(KEYS)}, or text; empty for enter): ")
        line = await self._asked_for(extension, prompt, shown)
        if line is None:
            return None
        words = line.split() or ["enter"]
        return {"keys": [key for word in words for key in ([KEYS[word]] if word in KEYS else word)]}

    async def _with_keys(self, extension: str, params: Mapping[str, Any]) -> Any:
        canvas = self._canvas
        if canvas is None or not canvas.is_of(extension, params):
            canvas = _Canvas(extension, params.get("component"))

        def shown() -> None:
            self._canvas, canvas.is_open = canvas, True
            if not canvas.height:
                self.end_line()
            self._draw(canvas, params)

        try:
            pressed = await self._keyboard.key(shown, extension)
        finally:
            canvas.is_open = False
        canvas.has_keys = pressed is not None
        return None if pressed is None else {"keys": _KEY.findall(pressed)}

    def _draw(self, canvas: _Canvas, params: Mapping[str, Any]) -> None:
        """Draw a component over its earlier lines if they stand at the end of the screen, else below."""
        width, rows = self.columns(canvas.extension), max(shutil.get_terminal_size().lines - 2, 5)
        lines = [_fitting(line, width) for line in _cut(params.get("lines") or [], min(_OPTIONS, rows))]
        up = f"\x1b[{canvas.height}A\x1b[J" if canvas.height else ""
        sys.stdout.write(up + _text(canvas.extension, lines))
        sys.stdout.flush()
        canvas.height = len(lines)

    # Progress (G6)

    def work(self) -> None:
        """Begin to draw progress: an agent starts its work."""
        if shows_more(sys.stdout):
            self._moving = asyncio.ensure_future(self._move())

    def rest(self) -> None:
        """Stop drawing progress: the work has ended."""
        if self._moving is not None:
            self._moving.cancel()
            self._moving = None
        self._clear_moving()

    async def _move(self) -> None:
        number = 0
        while True:
            moving = {name: working for name, working in self._working.items() if working.lines}
            if not self._keyboard.busy:
                self._draw_moving([marked(name, *_cut([it.line(number)])) for name, it in moving.items()])
            number += 1
            await asyncio.sleep(min((working.interval_ms for working in moving.values()), default=USUAL_MS) / 1000)

    def _draw_moving(self, lines: list[str]) -> None:
        self._clear_moving()
        width = max(shutil.get_terminal_size().columns - 1, _NARROWEST)
        shown = [_fitting(line, width) for line in lines[:_MOVING]]
        if shown and (self._canvas is None or not self._canvas.is_open):
            sys.stdout.write("".join(f"{line}\n" for line in shown))
            sys.stdout.flush()
            self._moving_height = len(shown)

    def _clear_moving(self) -> None:
        if self._moving_height:
            sys.stdout.write(f"\r\x1b[{self._moving_height}A\x1b[J")
            self._moving_height = 0
            sys.stdout.flush()

    def moved(self) -> None:
        """Note that other output follows: a component is then drawn below it."""
        self._clear_moving()
        if self._canvas is not None:
            self._canvas.height = 0

    async def _form(self, extension: str, params: Mapping[str, Any]) -> Any:
        """Ask for each field on a line of its own; an empty line leaves the field out."""
        shown = _text(extension, _cut([params.get("title", ""), *str(params.get("message") or "").split("\n")]))
        content: dict[str, Any] = {}
        for name, field in list((params.get("schema") or {}).get("properties", {}).items())[:_OPTIONS]:
            about = field.get("description") or field.get("title") or field.get("enum") or ""
            (label,) = _cut([f"{name} ({about})" if about else name])
            line = await self._asked_for(extension, marked(extension, f"{label}: "), shown)
            shown = ""
            if line is None:
                return None
            if text := line.strip():
                content[name] = text if field.get("type", "string") == "string" else canonical.decode(text)
        yes = await self._line(extension, [], "send this? yes or no") in ("y", "yes")
        answer = {"action": "accept", "content": content} if yes else {"action": "decline"}
        return checked_answer("form", params, answer)

    async def _asked_for(self, extension: str, prompt: str, shown: str) -> str | None:
        """Ask for a dialog's line; its turn may come in the middle of the model's text (G1)."""

        def begun() -> str:
            self.end_line()
            return shown

        return await self._keyboard.line(prompt, begun, asker=extension)

    async def _line(self, extension: str, shown: Iterable[Any], how: str) -> str:
        lines = [line for item in shown for line in str(item).split("\n")]
        text = _text(extension, _cut(lines, _OPTIONS + _LINES))
        line = await self._asked_for(extension, marked(extension, f"{how}: "), text)
        return (line or "").strip()


_DIALOGS = {
    "select": ChatUi._select,
    "confirm": ChatUi._confirm,
    "input": ChatUi._input,
    "editor": ChatUi._editor,
    "custom": ChatUi._custom,
    **dict.fromkeys(FORMS, ChatUi._form),
}


def marked(extension: str, text: str) -> str:
    """Return a line of an extension, marked with its name (G1)."""
    return f"[{one_line(extension)}] {text}"


def _cut(lines: Iterable[Any], most: int = _LINES) -> list[str]:
    cut: list[str] = []
    for line in lines:
        if len(cut) == most:
            return [*cut, "…"]
        text = one_line(str(line)[: _WIDTH + 1])
        cut.append(text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…")
    return cut


def _text(extension: str, lines: Iterable[str]) -> str:
    return "".join(f"{marked(extension, line)}\n" for line in lines)


def _cells(text: str) -> int:
    """Count the columns that a text takes at a terminal."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def _fitting(text: str, width: int) -> str:
    """Shorten a text to `width` columns of the terminal."""
    while _cells(text) > width:
        text = text[: len(text) - max((_cells(text) - width) // 2, 1)]
    return text
