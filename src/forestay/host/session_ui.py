"""The user interface of extensions in a host that serves front ends: each session has a room.

`hasUI` says whether a person is present. A dialog goes to the room of the session that the extensions live in. Without
a person it gets its default at once. When a person is expected (a turn continues after a restart), `prompts` asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from forestay.extensions import COLUMNS, DIALOGS, HOST_ASKS
from forestay.host.session_room import SessionRoom
from forestay.kernel import Ids

_ROOMS = 200


class SessionUi:
    """`extensions.Ui` over the rooms of sessions."""

    colour = False
    color_mode: Literal["truecolor", "256color"] = "256color"

    def __init__(self, ids: Ids, *, living: Callable[[], str | None], told: Callable[[], None]) -> None:
        """`living` returns the session that the extensions live in; `told` is called when a person comes or leaves."""
        self._ids = ids
        self._living = living
        self._told = told
        self._rooms: dict[str, SessionRoom] = {}
        self._expected: Counter[str] = Counter()

    def room(self, session: str) -> SessionRoom:
        """Return the room of a session; when there are too many rooms, drop the empty ones first."""
        if session not in self._rooms:
            if len(self._rooms) >= _ROOMS:
                self._make_space()
            self._rooms[session] = SessionRoom(lambda: self._ids.new("ask"), self._told)
        return self._rooms[session]

    def _make_space(self) -> None:
        spare = [name for name, room in self._rooms.items() if room.is_empty]
        spare = spare or [name for name, room in self._rooms.items() if not room.attended][:1]
        for name in spare:
            del self._rooms[name]

    def changed(self, session: str) -> None:
        """Wake the followers of the session's room: something in the session changed."""
        if session in self._rooms:
            self._rooms[session].changed()

    @contextmanager
    def expecting(self, session: str) -> Iterator[None]:
        """Expect, while the block runs, that a person who was present before a restart returns."""
        self._expected[session] += 1
        self._told()
        try:
            yield
        finally:
            self._expected[session] -= 1
            self._told()

    def is_attended(self, session: str) -> bool:
        """Whether a person is present."""
        return session in self._rooms and self._rooms[session].attended

    @property
    def interactive(self) -> bool:
        living = self._living()
        return living is not None and (self.is_attended(living) or self._expected[living] > 0)

    @property
    def absent(self) -> bool:
        """Whether a person is expected and not yet present."""
        living = self._living()
        return living is not None and self._expected[living] > 0 and not self.is_attended(living)

    def columns(self, extension: str) -> int:
        living = self._living()
        return self._rooms[living].columns if living in self._rooms else COLUMNS

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        living = self._living()
        if living is None or operation in HOST_ASKS:  # only runs ask the host's own questions
            return None
        if operation in DIALOGS:
            return await self.room(living).ask(extension, operation, params)
        return self.room(living).notice(extension, operation, params)
