"""The user interface of extensions in one session, as plain data for a front end: a browser, another program.

L1  Everything is text without control characters, cut to a limited number of characters and lines, and carries the
    name of its extension. The number of places, notices and dialogs of one extension is limited.
L2  A dialog stays open until it is answered, its extension withdraws it, or the person leaves. An answer that does not
    fit is refused, and the dialog stays open.
L3  A person is present while a front end follows the room, and for GRACE_SECONDS after the last front end has left: a
    page that reloads finds its dialogs.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from forestay.extensions import COLUMNS, KEYS, WORKING, Working, checked_answer
from forestay.kernel import Problem, one_line, printable

GRACE_SECONDS = 15.0
NOTICES, DIALOGS, PLACES = 20, 10, 20
"""The limits of one extension: notices and dialogs between two messages of the person, places at one time."""
LINES, WIDTH, OPTIONS, DRAFT = 20, 400, 50, 100_000
NARROWEST, WIDEST = 20, WIDTH
_KEPT_NOTICES = 50
_STANDING = {"setStatus": "status", "setWidget": "widget", "setHeader": "header", "setFooter": "footer"}
_STANDING |= {"setTitle": "title"}


class Notice(msgspec.Struct, frozen=True, rename="camel"):
    """A notification of an extension; numbers go up."""

    number: int
    extension: str
    level: str
    lines: list[str]


class Place(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something that an extension keeps in sight: `kind` is status, widget, header, footer, working or title. A
    place of kind `working` may have `frames`, which the front end shows in turn, each for `interval_ms`."""

    extension: str
    kind: str
    key: str
    lines: list[str]
    frames: list[str] = []
    interval_ms: int = 0


class Dialog(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A question of an extension: `operation` is select, confirm, input, editor, custom or form. After a person's keys,
    a component asks again under another `request_id` and with the same `component`."""

    request_id: str
    extension: str
    operation: str
    title: str
    lines: list[str] = []
    options: list[str] = []
    text: str = ""
    form: dict[str, Any] = {}
    component: str = ""


class Shown(msgspec.Struct, frozen=True, rename="camel"):
    """Everything that a room shows now; `left_out` counts what was over the limits."""

    version: int
    attended: bool
    dialogs: list[Dialog]
    places: list[Place]
    notices: list[Notice]
    draft: str
    left_out: dict[str, int]


class _Open(msgspec.Struct):
    dialog: Dialog
    params: Mapping[str, Any]
    answer: asyncio.Future[Any]
    heard: asyncio.Event


class SessionRoom:
    """The room of one session. It calls `told` when a person comes or has left."""

    def __init__(self, new_id: Callable[[], str], told: Callable[[], None] = lambda: None) -> None:
        self._new_id = new_id
        self._told = told
        self._dialogs: dict[str, _Open] = {}
        self._places: dict[tuple[str, str, str], Place] = {}
        self._notices: deque[Notice] = deque(maxlen=_KEPT_NOTICES)
        self._noticed = 0
        self._counts: Counter[tuple[str, str]] = Counter()
        self._is_over = False  # the person ended the turn: it asks nothing more
        self._followers = 0
        self._leaving: asyncio.TimerHandle | None = None
        self._stir = asyncio.Event()
        self._working: defaultdict[str, Working] = defaultdict(Working)
        self._goes_on: set[tuple[str, str]] = set()  # components that have just received a person's keys
        self.columns = COLUMNS
        self.version = 0
        self.draft = ""
        self.drafted = False  # whether an extension wrote the draft

    # Whether a person is present (L3)

    @property
    def attended(self) -> bool:
        return self._followers > 0 or self._leaving is not None

    @property
    def is_empty(self) -> bool:
        return not (self.attended or self._places or self._notices or self.draft)

    @contextmanager
    def followed(self, columns: int | None = None) -> Iterator[None]:
        """Count one follower of the room while the block runs; its screen has `columns` columns."""
        self._followers += 1
        if columns is not None:
            self.columns = min(max(columns, NARROWEST), WIDEST)
        self._stay(None)
        try:
            yield
        finally:
            self._followers -= 1
            self.seen()

    def seen(self) -> None:
        """Note that a person was present just now."""
        if not self._followers:
            self._stay(asyncio.get_running_loop().call_later(GRACE_SECONDS, self._left))

    def _stay(self, leaving: asyncio.TimerHandle | None) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        self._leaving = leaving
        self.changed()
        self._told()

    def _left(self) -> None:
        self._leaving = None
        self._give_up()
        self.changed()
        self._told()

    # What it shows

    def shown(self) -> Shown:
        limits = {"notices": NOTICES, "dialogs": DIALOGS}
        beyond = Counter(dict.fromkeys(limits, 0))
        for (what, _), count in self._counts.items():
            beyond[what] += max(0, count - limits[what])
        return Shown(
            version=self.version,
            attended=self.attended,
            dialogs=[item.dialog for item in self._dialogs.values()],
            places=list(self._places.values()),
            notices=list(self._notices),
            draft=self.draft,
            left_out=dict(beyond),
        )

    def changed(self) -> None:
        self.version += 1
        self._stir.set()
        self._stir = asyncio.Event()

    async def after(self, version: int) -> None:
        """Wait until something has changed since `version`."""
        while self.version <= version:
            await self._stir.wait()

    def spoken(self) -> None:
        """Note a message of the person: the limits of extensions start again, and the draft is used up."""
        self._counts.clear()
        self._is_over, self.drafted = False, False
        self.draft = ""
        self.changed()

    # What an extension does

    def notice(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        if operation == "getEditorText":
            return self.draft
        if operation == "getStatuses":
            return {place.key: place.lines[0] for place in self._places.values() if place.kind == "status"}
        if operation in ("setEditorText", "pasteToEditor"):
            text = str(params.get("text") or "")
            self.draft = printable((self.draft + text if operation == "pasteToEditor" else text)[:DRAFT])
            self.drafted = True
        elif operation in WORKING:
            working = self._working[extension]
            shown = {"text": working.heard(operation, params)}
            self._stand(extension, "working", shown, working.lines, working.interval_ms)
        elif operation in _STANDING:
            self._stand(extension, _STANDING[operation], params)
        elif operation == "redraw":
            self._redraw(extension, params)
        elif operation == "notify" and self._within(extension, "notices", NOTICES):
            self._noticed += 1
            level = str(params.get("type")) if params.get("type") in ("error", "warning") else "info"
            said = cut(str(params.get("message", "")).split("\n", LINES + 1))
            self._notices.append(Notice(self._noticed, extension, level, said))
        self.changed()
        return None

    def _redraw(self, extension: str, params: Mapping[str, Any]) -> None:
        """Replace the lines of an open component."""
        for asked in self._dialogs.values():
            dialog = asked.dialog
            if dialog.component and (dialog.extension, dialog.component) == (extension, _component(params)):
                asked.dialog = msgspec.structs.replace(dialog, lines=cut(params.get("lines") or [], OPTIONS))

    def _stand(
        self, extension: str, kind: str, params: Mapping[str, Any], frames: Sequence[str] = (), interval_ms: int = 0
    ) -> None:
        text = params.get("text") or params.get("message") or params.get("title")
        lines = params.get("lines") or ([text] if text else [])
        key = one_line(str(params.get("key") or ""))[:80]
        place = (extension, kind, key)
        taken = sum(owner == extension for owner, _, _ in self._places)
        if not lines:
            self._places.pop(place, None)
        elif place in self._places or taken < PLACES:
            drawn = cut(frames, len(frames))
            self._places[place] = Place(extension, kind, key, cut(lines), drawn, interval_ms if drawn else 0)

    def _within(self, extension: str, what: str, most: int) -> bool:
        self._counts[what, extension] += 1
        return self._counts[what, extension] <= most

    async def ask(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        """Return the person's answer to a dialog; None when nobody is present or the dialog is over the limit (L1, L2).
        A component that continues after a person's keys does not count as another dialog."""
        goes_on = (extension, _component(params)) in self._goes_on
        self._goes_on.discard((extension, _component(params)))
        if not self.attended or self._is_over or not (goes_on or self._within(extension, "dialogs", DIALOGS)):
            self.changed()
            return None
        dialog = _dialog(self._new_id(), extension, operation, params)
        asked = _Open(dialog, params, asyncio.get_running_loop().create_future(), asyncio.Event())
        self._dialogs[dialog.request_id] = asked
        self.changed()
        try:
            return await asked.answer
        finally:
            self._dialogs.pop(dialog.request_id, None)
            asked.heard.set()
            self.changed()

    async def answer(self, request_id: str, value: Any) -> str:
        """Answer a dialog; None cancels it. Wait until the extension has the answer; return the extension's name."""
        asked = self._dialogs.get(request_id)
        if asked is None or asked.answer.done():
            raise Problem("not_found", "No open dialog has this id.", fix="Read the session again.")
        asked.answer.set_result(_fitting(asked, value))
        if value is not None and asked.dialog.component:
            self._goes_on.add((asked.dialog.extension, asked.dialog.component))
        await asked.heard.wait()
        return asked.dialog.extension

    def end_turn(self) -> None:
        """Answer every dialog as cancelled, until the person's next message."""
        self._is_over = True
        self._give_up()

    def _give_up(self) -> None:
        for asked in self._dialogs.values():
            if not asked.answer.done():
                asked.answer.set_result(None)


def cut(lines: Iterable[Any], most: int = LINES) -> list[str]:
    """Return at most `most` lines, each at most WIDTH characters and without control characters (L1)."""
    kept: list[str] = []
    for line in lines:
        if len(kept) == most:
            return [*kept, "…"]
        text = one_line(str(line)[: WIDTH + 1])
        kept.append(text if len(text) <= WIDTH else f"{text[:WIDTH]}…")
    return kept


def _component(params: Mapping[str, Any]) -> str:
    """Return the number of the component that a question is about; empty for none."""
    number = params.get("component")
    return str(number) if isinstance(number, int) and params.get("op") in ("custom", "redraw") else ""


def _dialog(id: str, extension: str, operation: str, params: Mapping[str, Any]) -> Dialog:
    title = cut(str(params.get("title") or "").split("\n", 1), 1)[0]
    said = params.get("lines") if operation == "custom" else str(params.get("message") or "").split("\n", LINES + 1)
    options = [str(option) for option in params.get("options") or []]
    text = str(params.get("text") or params.get("placeholder") or "")[:DRAFT]
    schema = params.get("schema")
    return Dialog(
        request_id=id,
        extension=extension,
        operation=operation,
        title=title,
        lines=cut(said or [], OPTIONS) if said != [""] else [],
        options=cut(options[:OPTIONS], OPTIONS),
        text=text if operation == "editor" else (cut([text])[0] if text else ""),
        form=dict(schema) if operation == "form" and isinstance(schema, Mapping) else {},
        component=_component(params),
    )


def _fitting(asked: _Open, value: Any) -> Any:
    """Return the answer in the form that the extension expects, or refuse it (L2)."""
    operation = asked.dialog.operation
    if value is None:
        return None
    if operation == "select" and isinstance(value, str) and value in asked.dialog.options:
        value = asked.dialog.options.index(value)  # the shown option may be cut; the extension gets its own text
    if operation == "custom":
        keys = value.get("keys") if isinstance(value, Mapping) else None
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise Problem("schema_mismatch", "A component is answered with `keys`, a list of texts.", names=list(KEYS))
        return {"keys": [key for word in keys for key in ([KEYS[word]] if word in KEYS else word)]}
    return checked_answer(operation, asked.params, value)
