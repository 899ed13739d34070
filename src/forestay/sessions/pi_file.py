"""Session files of pi: JSON lines, a header and then the entries. Versions 1 and 2 are converted to version 3.

- F1  A written file is readable by pi: the header first, every entry with its id, its parent and its time.
- F2  A file is checked when it is read: ids are unique, and each parent comes before its children. An entry of an
      unknown kind is kept unchanged.
- F3  An incomplete last line is left out, as in pi: its writer was stopped. Any other is a Problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from forestay.kernel import Ids, Problem, canonical
from forestay.sessions.tree import VERSION, Entry, SessionTree

MAX_BYTES = 32 * 1024 * 1024
MAX_ENTRIES = 100_000
_NEEDED: dict[str, dict[str, type]] = {
    "message": {"message": dict},
    "custom_message": {"customType": str},
    "custom": {"customType": str},
    "compaction": {"summary": str},
    "branch_summary": {"summary": str, "fromId": str},
    "label": {"targetId": str},
    "session_info": {},
    "model_change": {},
    "thinking_level_change": {"thinkingLevel": str},
}


def write_file(tree: SessionTree) -> Iterator[bytes]:
    """Yield the lines of the session's file (F1)."""
    for item in (tree.header, *tree.entries):
        yield canonical.encode(item) + b"\n"


def read_file(data: bytes, ids: Ids) -> tuple[Entry, list[Entry]]:
    """Return the header and the entries of a session file, in version 3 (F2, F3)."""
    if len(data) > MAX_BYTES:
        raise Problem("payload_too_large", "The session file is too large.", limit=MAX_BYTES, observed=len(data))
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    items = list(_decoded(lines))
    if not items or items[0][1].get("type") != "session" or not isinstance(items[0][1].get("id"), str):
        raise _wrong("The first line is not the header of a session.", 1)
    version = items[0][1].get("version", 1)
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise _wrong(f"Version {str(version)[:20]} of the session format is not known.", 1)
    if len(items) > MAX_ENTRIES:
        raise Problem("payload_too_large", "The session has too many entries.", limit=MAX_ENTRIES, observed=len(items))
    header = {**items[0][1], "version": VERSION}
    entries = items[1:] if version > 1 else _linked(items, ids)
    checked = [_checked(number, entry) for number, entry in entries]
    _connected(entries)
    return header, checked


def _decoded(lines: list[tuple[int, bytes]]) -> Iterator[tuple[int, Entry]]:
    for at, (number, line) in enumerate(lines):
        try:
            item = canonical.decode(line)
        except Problem as problem:
            if at == len(lines) - 1 and at > 0:
                return  # F3
            raise _wrong("The line is not JSON.", number) from problem
        if not isinstance(item, dict):
            raise _wrong("The line is not a JSON object.", number)
        yield number, item


def _linked(items: list[tuple[int, Entry]], ids: Ids) -> list[tuple[int, Entry]]:
    """Give the entries of version 1 ids and parents: it has no tree, and a compaction refers to a line number."""
    names = ["", *(ids.token(4) for _ in items[1:])]
    if len(set(names)) < len(names):
        return _linked(items, ids)
    linked = []
    for at, (number, item) in enumerate(items[1:], 1):
        entry = {**item, "id": names[at], "parentId": names[at - 1] or None}
        first = entry.pop("firstKeptEntryIndex", None)
        if isinstance(first, int) and 0 < first < len(names):
            entry["firstKeptEntryId"] = names[first]
        linked.append((number, entry))
    return linked


def _checked(number: int, entry: Entry) -> Entry:
    kind, parent = entry.get("type"), entry.get("parentId")
    if not isinstance(kind, str) or not isinstance(entry.get("id"), str) or not isinstance(entry.get("timestamp"), str):
        raise _wrong("An entry must have a type, an id and a timestamp.", number)
    if parent is not None and not isinstance(parent, str):
        raise _wrong("`parentId` must be the id of an entry, or null.", number)
    for name, type in _NEEDED.get(kind, {}).items():
        if not isinstance(entry.get(name), type):
            raise _wrong(f"An entry of type {kind} must have a valid `{name}`.", number)
    entry.setdefault("parentId", None)
    message = entry.get("message")
    if kind != "message" or not isinstance(message, Mapping):
        return entry
    if not isinstance(message.get("role"), str):
        raise _wrong("A message must have a role.", number)
    return {**entry, "message": {**message, "role": "custom"}} if message["role"] == "hookMessage" else entry


def _connected(entries: list[tuple[int, Entry]]) -> None:
    """Refuse an entry whose parent does not come before it; so there is no cycle."""
    seen: set[str] = set()
    for number, entry in entries:
        if entry["id"] in seen:
            raise _wrong(f"The id {entry['id'][:40]} occurs twice.", number)
        parent: Any = entry["parentId"]
        if parent is not None and parent not in seen:
            raise _wrong(f"The parent {parent[:40]} does not come before its child.", number)
        seen.add(entry["id"])


def _wrong(message: str, line: int) -> Problem:
    return Problem("schema_mismatch", message, at=f"line {line}", fix="Give a session file of pi (JSON lines).")
