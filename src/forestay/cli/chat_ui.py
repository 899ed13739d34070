"""What extensions show in a chat: notices, a status line, widgets, dialogs.

G1  Every line that an extension shows begins with its name in brackets; no line of the host does. Control characters
    are spelled out, lines are cut, and there are only so many of them.
G2  Between two lines of the person an extension may show so many notices and ask so many questions. What is beyond that
    is counted and told; a question is then answered as cancelled.
G3  A dialog never takes the line that the person is typing: it is told, and asked after that line.
G4  When the person ends what is under way, its questions are cancelled: those that are open, and those that come
    until something new begins.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from forestay.cli.keyboard import Keyboard
from forestay.extensions import FORMS, KEYS, checked_answer
from forestay.kernel import canonical, one_line

NOTICES, DIALOGS = 20, 10
_LINES, _WIDTH, _OPTIONS = 20, 400, 50
_PLACES = {"setWidget": "lines", "setHeader": "lines", "setFooter": "lines"}


class ChatUi:
    """`extensions.Ui` for a person at a terminal who is in a conversation."""

    interactive = True
    colour = False
    color_mode: Literal["truecolor", "256color"] = "256color"

    def __init__(self, keyboard: Keyboard) -> None:
        self._keyboard = keyboard
        self._shown: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._standing: dict[tuple[str, str], list[str]] = {}  # what stays on the screen: by extension and place
        self._open: set[asyncio.Future[Any]] = set()
        self._given_up = False
        self._told: dict[tuple[str, str], list[str]] = {}  # what stands there, as it was shown last
        self.draft = ""
        """What stands in the next line."""
        self.drafted = False
        """Whether an extension put it there."""
        self.end_line: Callable[[], None] = lambda: None
        """Ends the line that is being shown, so that an extension's begins on its own (G1)."""

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        ask = _DIALOGS.get(operation)
        if ask is None:
            return self._notice(extension, operation, params)
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
            answer.cancel()  # of an extension that does not wait any more
            self._open.discard(answer)
        return None if answer.cancelled() else answer.result()

    def give_up(self) -> None:
        """Answer what is asked now as cancelled: the person ended what it was asked for (G4)."""
        self._given_up = True
        for answer in self._open:
            answer.cancel()

    def begin(self) -> None:
        """Take questions again: they belong to something new."""
        self._given_up = False

    # Notices

    def _notice(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        if operation == "getEditorText":
            return self.draft
        if operation in ("setEditorText", "pasteToEditor"):
            text = str(params.get("text") or "")[: _WIDTH * _LINES]
            self.draft = self.draft + text if operation == "pasteToEditor" else text
            self.drafted = True
        elif operation == "setStatus":
            self._stand(extension, f"status:{params.get('key')}", [params["text"]] if params.get("text") else [])
        elif operation in _PLACES:
            self._stand(extension, f"{operation}:{params.get('key', '')}", params.get("lines") or [])
        elif operation == "setWorkingMessage":
            self._stand(extension, operation, [params["message"]] if params.get("message") else [])
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
            self.end_line()
            sys.stdout.write("\n" if self._keyboard.busy else "")
            sys.stdout.write(_text(extension, _cut(lines)))
            sys.stdout.flush()

    def before_prompt(self) -> str:
        """What stands beside the conversation, when it has changed, and what was left out since the last line."""
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
        """A component with the keyboard: what it shows, and the keys that the person has for it."""
        shown = _text(extension, _cut(params.get("lines") or [], _OPTIONS))
        prompt = marked(extension, f"keys ({', '.join(KEYS)}, or text; empty for enter): ")
        line = await self._asked_for(extension, prompt, shown)
        if line is None:
            return None
        words = line.split() or ["enter"]
        return {"keys": [key for word in words for key in ([KEYS[word]] if word in KEYS else word)]}

    async def _form(self, extension: str, params: Mapping[str, Any]) -> Any:
        """Each field on a line of its own; an empty line leaves a field out."""
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
        """A line for a dialog, whose turn may come in the middle of what the model says (G1)."""

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
    """A line of an extension, told apart from every other (G1)."""
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
