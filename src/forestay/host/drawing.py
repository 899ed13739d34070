"""Entries of a session as extensions draw them: custom messages and entries, tool calls and results, changed texts.

Z1  A drawing is text without control characters, cut like everything that extensions show, with the extension's name.
Z2  An entry is drawn once and its drawing kept. An entry whose drawing fails or takes longer than SECONDS is shown
    plainly.
Z3  One call draws the newest AT_ONCE entries; older ones are shown plainly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.host.extensions import ProjectExtensions
from forestay.host.session_room import OPTIONS, cut
from forestay.kernel import Problem
from forestay.sessions import Entry, role_of, text_of

if TYPE_CHECKING:
    from forestay.extensions import Extensions

SECONDS = 2.0
AT_ONCE, _KEPT = 40, 1000
_Draw = Callable[[], Awaitable[list[str]]]
_Candidates = list[tuple[str, _Draw]]


class Drawn(msgspec.Struct, frozen=True):
    """The lines that an extension draws in place of an entry."""

    extension: str
    lines: tuple[str, ...]


class Drawings:
    """The drawings of a host's sessions; none while its extensions are not loaded."""

    def __init__(self, extensions: ProjectExtensions) -> None:
        self._extensions = extensions
        self._kept: dict[str, Drawn | None] = {}
        self._columns = 0  # the width that the kept drawings were made for

    async def of(self, branch: Iterable[Entry]) -> dict[str, Drawn]:
        """Return the drawings of a branch's entries, by entry id."""
        suite, entries = self._extensions.opened, list(branch)
        if suite is None:
            return {}
        if (columns := suite.ui.columns("")) != self._columns:
            self._kept.clear()
            self._columns = columns
        found: dict[str, Drawn] = {}
        calls = {str(call.get("id")): call for entry in entries for call in _calls(entry)}
        for entry in entries[-AT_ONCE:]:
            if (drawn := await self._of(suite, entry, calls)) is not None:
                found[entry["id"]] = drawn
        return found

    async def _of(self, suite: Extensions, entry: Entry, calls: Mapping[str, Any]) -> Drawn | None:
        if entry["id"] in self._kept:
            return self._kept[entry["id"]]
        drawn = await self._draw(suite, entry, calls)
        while len(self._kept) >= _KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[entry["id"]] = drawn
        return drawn

    async def _draw(self, suite: Extensions, entry: Entry, calls: Mapping[str, Any]) -> Drawn | None:
        if (drawn := await _transformed(suite, entry)) is not None:
            return drawn
        owner, parts = "", list[str]()
        for candidates in _renderers(suite, entry, calls):
            for extension, draw in candidates:
                try:
                    lines = cut(await draw(), OPTIONS)
                except Problem:  # the evidence has its trap or error
                    continue
                if lines:
                    owner, parts = owner or extension, [*parts, *lines]
                    break
        return Drawn(owner, tuple(parts)) if parts else None


async def _transformed(suite: Extensions, entry: Entry) -> Drawn | None:
    """Return a message as the extensions that change texts rewrite it; None when none changes it."""
    role = role_of(entry)
    text, owner = text_of(entry["message"].get("content")) if role in ("user", "assistant") else "", ""
    for member in suite.members if text else ():
        guest = member.extension
        if not guest.registrations.markdown_transformers:
            continue
        about = {"messageType": role, "isStreaming": False, "availableWidth": suite.ui.columns(guest.name)}
        about |= {"messageId": entry["id"], "timestamp": entry["timestamp"]}
        try:
            made = await guest.transform(text, about, timeout=SECONDS)
        except Problem:  # the evidence has its trap or error
            continue
        if made is not None and made != text:
            text, owner = made, guest.name
    return Drawn(owner, tuple(cut(text.split("\n"), OPTIONS))) if owner else None


def _renderers(suite: Extensions, entry: Entry, calls: Mapping[str, Any]) -> list[_Candidates]:
    """Return, for each part of an entry, the extensions that may draw it, each with its call."""
    kind, role = entry["type"], role_of(entry)
    name = str(entry.get("customType"))
    for member in suite.members:
        guest, known = member.extension, member.extension.registrations
        width = suite.ui.columns(guest.name)
        if kind == "custom_message" and entry.get("display") and name in known.renderers:
            message = {**entry, "role": "custom"}
            return [[(guest.name, partial(guest.render, name, message, width=width, timeout=SECONDS))]]
        if kind == "custom" and name in known.entry_renderers:
            return [[(guest.name, partial(guest.render_entry, name, entry, width=width, timeout=SECONDS))]]
    if role == "toolResult":
        message = entry["message"]
        call = calls.get(str(message.get("toolCallId")), {})
        result = {"content": message.get("content"), "details": message.get("details")}
        return [_tool(suite, str(message.get("toolName")), call.get("arguments"), result)]
    return [_tool(suite, str(call.get("name")), call.get("arguments")) for call in _calls(entry)]


def _tool(suite: Extensions, name: str, arguments: Any, result: Any = None) -> _Candidates:
    """Return who may draw a tool: the extensions that draw any tool, then the tool's own extension."""
    guests = [item.extension for item in suite.members if item.extension.registrations.tool_renderers]
    tool = next((item for item in suite.tools() if item.name == name), None)
    if tool is not None and (tool.renders_call if result is None else tool.renders_result):
        guests.append(suite.owner(name).extension)
    found: _Candidates = []
    for guest in guests:
        width = suite.ui.columns(guest.name)
        draw = partial(guest.render_tool, name, arguments, result, width=width, timeout=SECONDS)
        found.append((guest.name, draw))
    return found


def _calls(entry: Entry) -> list[Mapping[str, Any]]:
    content = entry["message"].get("content") if role_of(entry) == "assistant" else None
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, Mapping) and block.get("type") == "toolCall"]
