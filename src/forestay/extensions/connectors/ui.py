"""Answers an extension's dialogs: by a person at a terminal, a client over RPC, or a script; or refuses them.

Operations with an answer: select {title, options}, confirm {title, message}, input {title, placeholder},
editor {title, text}, form {title, message, schema}. Notices without one: notify, setStatus, setWidget, setTitle,
setEditorText and others; redraw {component, lines} changes what an open `custom {component, lines}` shows.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

from forestay.extensions.connectors.contract import Call, Output, text
from forestay.extensions.git_branch import branch_of, repository
from forestay.extensions.outcomes import COLUMNS
from forestay.extensions.themes import OPERATIONS as THEME_OPERATIONS
from forestay.extensions.themes import Themes
from forestay.kernel import Bounds, Problem, bounded, canonical
from forestay.tools import checker

KEYS = {"enter": "\r", "esc": "\x1b", "tab": "\t", "space": " ", "backspace": "\x7f"} | {
    name: f"\x1b[{letter}" for name, letter in zip(("up", "down", "right", "left"), "ABCD", strict=True)
}
_STYLE = re.compile(r"(\x1b\[[0-9;]{0,32}m)")
HOST_ASKS = ("sign_in", "pin_tool")
"""Forms that only the host shows; an extension cannot."""
FORMS = ("form", *HOST_ASKS)
DIALOGS = ("select", "confirm", "input", "editor", "custom", *FORMS)
BRANCH_SECONDS = 0.5
"""The interval at which a watch checks the project's branch."""


class Ui(Protocol):
    @property
    def interactive(self) -> bool:
        """Whether a person is there to answer: `ctx.hasUI`."""

    colour: bool
    """Whether its output may have colours."""
    color_mode: Literal["truecolor", "256color"]

    def columns(self, extension: str) -> int:
        """Return how many columns an extension may draw."""

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        """Show it; for a dialog, return the person's answer (None: cancelled)."""


MOST_RECORDED = 1000
_SHOWN = Bounds(text=16_384, total=65_536)


class Recorded:
    """Keeps the last notices and dialogs of extensions, in order and shortened, for the caller's report."""

    colour = False
    color_mode: Literal["truecolor", "256color"] = "truecolor"

    def __init__(self) -> None:
        self.calls: deque[dict[str, Any]] = deque(maxlen=MOST_RECORDED)

    def columns(self, extension: str) -> int:
        return COLUMNS

    def record(self, extension: str, operation: str, params: Mapping[str, Any], answer: Any = None) -> None:
        entry: dict[str, Any] = {"extension": extension, "op": operation}
        entry.update(bounded({key: value for key, value in params.items() if key != "op"}, _SHOWN))
        if operation in DIALOGS:
            entry["answer"] = answer
        self.calls.append(entry)


class NoUi(Recorded):
    """For a host without a person: keeps notices, refuses dialogs."""

    interactive = False

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        self.record(extension, operation, params)
        if operation in DIALOGS:
            raise Problem(
                "consent_required",
                f"The extension wants to show a dialog ({operation}), and nobody is there to answer.",
                operation=operation,
                fix="Run it at a terminal, or give the answers with --ui-script.",
            )
        return None


class ScriptedUi(Recorded):
    """Answers dialogs from a list, in order; a dialog without an answer left is an error."""

    interactive = True

    def __init__(self, answers: Sequence[Any]) -> None:
        super().__init__()
        self._answers = list(answers)

    @classmethod
    def load(cls, path: Path) -> ScriptedUi:
        """Read a JSON array of answers, each plain or `{"op": "select", "answer": …}` to check the dialog's kind."""
        answers = canonical.decode(path.read_bytes())
        if not isinstance(answers, list):
            raise Problem("schema_mismatch", "A UI script must be a JSON array of answers.", at=str(path.name))
        return cls(answers)

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        if operation not in DIALOGS:
            self.record(extension, operation, params)
            return None
        if not self._answers:
            raise Problem("consent_required", f"The UI script has no answer left for a {operation} dialog.")
        entry = self._answers.pop(0)
        answer = entry
        if isinstance(entry, Mapping) and "op" in entry:
            if entry["op"] != operation:
                raise Problem(
                    "state_conflict", f"The UI script expects {entry['op']}, the extension shows {operation}."
                )
            answer = entry.get("answer")
        answer = checked_answer(operation, params, answer)
        self.record(extension, operation, params, answer)
        return answer


class TerminalUi(Recorded):
    """Asks a person at a terminal; questions go to stderr, so that stdout has only data."""

    interactive = True

    def __init__(self, source: TextIO, sink: TextIO, environ: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._source = source
        self._sink = sink
        known = os.environ if environ is None else environ
        self.colour = sink.isatty() and not known.get("NO_COLOR") and known.get("TERM", "dumb") != "dumb"
        self.color_mode = "truecolor" if known.get("COLORTERM") in ("truecolor", "24bit") else "256color"
        self._turn = asyncio.Lock()

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        async with self._turn:
            answer = await asyncio.to_thread(self._converse, extension, operation, params)
        self.record(extension, operation, params, answer)
        return answer

    def _converse(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        title = plain(str(params.get("title") or params.get("message") or ""))
        if operation not in DIALOGS:
            for line in _notice(operation, params):
                self._say(f"[{extension}] {styled(line)}")
            return None
        if operation == "custom":
            return self._custom(extension, params)
        if operation == "select":
            return self._select(extension, title, params)
        if operation in FORMS:
            return checked_answer(operation, params, self._form(extension, title, params))
        if operation == "confirm":
            self._say(f"[{extension}] {title}: {plain(str(params.get('message', '')))} [y/N] ", end="")
            return self._line().strip().lower() in ("y", "yes")
        self._say(f"[{extension}] {title}: ", end="")
        line = self._line()
        return line.rstrip("\n") if line else None

    def _select(self, extension: str, title: str, params: Mapping[str, Any]) -> Any:
        options = [str(option) for option in params.get("options") or []]
        self._say(f"[{extension}] {title}")
        for index, option in enumerate(options, start=1):
            self._say(f"  {index}. {plain(option)}")
        self._say(f"1-{len(options)}, empty to cancel: ", end="")
        answer = self._line().strip()
        return options[int(answer) - 1] if answer.isdigit() and 1 <= int(answer) <= len(options) else None

    def _form(self, extension: str, title: str, params: Mapping[str, Any]) -> Any:
        """Ask for each field on its own line; an empty line leaves a field out."""
        self._say(f"[{extension}] {title}: {plain(str(params.get('message', '')))}")
        content: dict[str, Any] = {}
        for name, field in (params.get("schema") or {}).get("properties", {}).items():
            about = plain(str(field.get("description") or field.get("title") or field.get("enum") or ""))
            self._say(f"  {plain(name)} ({about}): " if about else f"  {plain(name)}: ", end="")
            line = self._line()
            if not line:
                return None
            if text := line.strip():
                content[name] = text if field.get("type", "string") == "string" else canonical.decode(text)
        self._say("Send this? [y/N] ", end="")
        yes = self._line().strip().lower() in ("y", "yes")
        return {"action": "accept", "content": content} if yes else {"action": "decline"}

    def _custom(self, extension: str, params: Mapping[str, Any]) -> Any:
        """Show a component that has the keyboard, and read the person's keys for it."""
        for line in params.get("lines") or []:
            self._say(f"[{extension}] {styled(str(line))}")
        self._say(f"keys ({', '.join(KEYS)}, text; empty for enter): ", end="")
        line = self._line()
        if not line:
            return None
        words = line.split()
        return {"keys": [key for word in words or ["enter"] for key in ([KEYS[word]] if word in KEYS else word)]}

    def _say(self, message: str, end: str = "\n") -> None:
        self._sink.write(message + end)
        self._sink.flush()

    def _line(self) -> str:
        return self._source.readline()


class UiConnector:
    """Shows dialogs and notices. A dialog that no person can answer is refused (Pi §3.2A `ui`).

    It calls `hold(extension, True)` while a person has a dialog open: that time does not count for the extension.
    """

    method = "ui"

    def __init__(
        self,
        ui: Ui | None = None,
        themes: Themes | None = None,
        hold: Callable[[str, bool], None] = lambda _extension, _held: None,
        tell: Callable[[dict[str, Any]], None] = lambda _event: None,
        root: str = "",
    ) -> None:
        """`tell` gets an event for extensions when a dialog begins and ends; `root` is the project."""
        self._ui = ui or NoUi()
        self._themes = themes or Themes()
        self._hold = hold
        self._tell = tell
        self._root = root

    async def wait(self, call: Call, params: Mapping[str, Any]) -> Output:
        operation = text(params, "op")
        if operation in HOST_ASKS:
            raise Problem("invalid_request", f"Only the host can show a {operation} dialog.", at="$.params.op")
        if operation in DIALOGS:
            return {"value": await self._dialog(call.extension, operation, params)}
        if operation == "getGitBranch":
            return {"value": await asyncio.to_thread(self._branch, call)}
        if operation == "watchGitBranch":
            return await self._watch_branch(call)
        if operation not in THEME_OPERATIONS:
            return {"value": await self._ui.request(call.extension, operation, params)}
        answer = self._themes.request(call.extension, operation, params)
        if operation == "setTheme":  # a front end may need to draw again
            shown = {"op": operation, "name": params.get("name"), "success": answer["success"]}
            await self._ui.request(call.extension, operation, shown)
        return {"value": answer}

    def _branch(self, call: Call) -> str | None:
        """Return the project's branch, if a grant lets the extension read the file that names it."""
        place = repository(self._root) if self._root else None
        if place is None:
            return None
        is_inside = posixpath.dirname(place.mark) == self._root
        told = ".git/HEAD" if is_inside else posixpath.join(place.mark, "HEAD")
        return branch_of(place) if call.policy.granted("read", told) else None

    async def _watch_branch(self, call: Call) -> Output:
        """Check the branch until the call is cancelled; emit a chunk {branch} at each change."""
        if not call.streaming:
            raise Problem("invalid_request", "A watch must be a streamed call.", at="$.params.op")
        before = await asyncio.to_thread(self._branch, call)
        while not call.cancelled.is_set():
            await asyncio.sleep(BRANCH_SECONDS)
            now = await asyncio.to_thread(self._branch, call)
            if now != before:
                before = now
                await call.room()
                call.emit({"branch": now})
        return {}

    async def _dialog(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        about = {"reason": "ui_prompt", "kind": operation, "title": str(params.get("title") or "")}
        self._hold(extension, True)
        self._tell({"type": "ui_prompt_start", **about})
        try:
            return await self._ui.request(extension, operation, params)
        finally:
            self._hold(extension, False)
            self._tell({"type": "ui_prompt_end", **about})


def checked_answer(operation: str, params: Mapping[str, Any], answer: Any) -> Any:
    """Return the answer; raise a Problem if it does not fit the dialog."""
    if answer is None or operation == "custom" or operation not in DIALOGS:
        return answer
    if operation == "confirm" and not isinstance(answer, bool):
        raise Problem("schema_mismatch", "The answer to a confirm dialog must be true or false.")
    if operation == "select":
        options = params.get("options") or []
        if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(options):
            return options[answer]
        if answer not in options:
            raise Problem("schema_mismatch", "The answer is not one of the dialog's options.", options=options)
    if operation in FORMS:
        _check_form(params, answer)
    if operation in ("input", "editor") and not isinstance(answer, str):
        raise Problem("schema_mismatch", f"The answer to an {operation} dialog must be text.")
    return answer


def _check_form(params: Mapping[str, Any], answer: Any) -> None:
    """Check a form's answer: accepted with values that fit its schema, declined or cancelled."""
    action = answer.get("action") if isinstance(answer, Mapping) else None
    if action not in ("accept", "decline", "cancel"):
        raise Problem("schema_mismatch", "The answer to a form must have an `action`: accept, decline or cancel.")
    if action == "accept":
        misfit = next(iter(checker(params.get("schema") or {}).iter_errors(answer.get("content", {}))), None)
        if misfit is not None:
            raise Problem(
                "schema_mismatch", f"The form's values do not fit its schema: {misfit.message}"[:500], at="$.content"
            )


def _notice(operation: str, params: Mapping[str, Any]) -> list[str]:
    """Return the lines of a notice for a person."""
    if operation == "notify":
        return [str(params.get("message", ""))]
    if operation in ("setWidget", "setHeader", "setFooter"):
        return [str(line) for line in params.get("lines") or []]
    if operation == "setStatus" and params.get("text"):
        return [f"{params.get('key')}: {params['text']}"]
    if operation in ("setTitle", "setWorkingMessage"):
        return [shown] if (shown := str(params.get("title") or params.get("message") or "")) else []
    return []


def styled(value: str) -> str:
    """As `plain`, but keep colours and attributes, and reset them at the end."""
    parts = _STYLE.split(value)
    kept = "".join(part if _STYLE.fullmatch(part) else plain(part) for part in parts)
    return f"{kept}\x1b[0m" if len(parts) > 1 else kept


def plain(value: str) -> str:
    """Replace control characters, so that the text cannot move the cursor or change its surroundings."""
    return "".join(character if character.isprintable() or character in "\n\t" else "�" for character in value)
