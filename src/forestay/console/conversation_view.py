"""A session as a page shows it: one line for each entry of the branch, and the ends of other branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from forestay.host import Drawn
from forestay.kernel import printable
from forestay.sessions import Entry, SessionTree, role_of, text_of

_TEXT = 20_000
_SHOWN = 400
_WORDS = 100
Kind = Literal["user", "assistant", "result", "message", "note"]


class ToolUse(msgspec.Struct, frozen=True):
    """A tool call of the model."""

    name: str
    arguments: Any


class Line(msgspec.Struct, frozen=True):
    """One entry; `by` is its author: a tool, a kind of message, a kind of entry. An extension may have `drawn` it."""

    id: str
    kind: Kind
    by: str = ""
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    is_error: bool = False
    label: str = ""
    drawn: tuple[str, ...] = ()
    drawn_by: str = ""


class Branch(msgspec.Struct, frozen=True):
    """The end of a branch that the session left."""

    id: str
    words: str
    entries: int


class Conversation(msgspec.Struct, frozen=True):
    """The current branch; `earlier` counts the entries before those that are shown."""

    lines: tuple[Line, ...]
    earlier: int
    branches: tuple[Branch, ...]


def conversation_of(tree: SessionTree, drawn: Mapping[str, Drawn]) -> Conversation:
    """Return the branch for the page; `drawn` holds what extensions draw in place of entries."""
    branch = tree.branch()
    lines: list[Line] = []
    for entry in branch[-_SHOWN:]:
        line, drawing = _line(entry, tree), drawn.get(entry["id"])
        if drawing is not None:
            line = line or Line(entry["id"], "message", str(entry.get("customType")))
            line = msgspec.structs.replace(line, drawn=drawing.lines, drawn_by=drawing.extension)
        lines += [line] if line is not None else []
    return Conversation(tuple(lines), max(0, len(branch) - _SHOWN), tuple(_branches(tree)))


def _line(entry: Entry, tree: SessionTree) -> Line | None:
    id, kind, label = entry["id"], entry["type"], tree.label_of(entry["id"]) or ""
    match role_of(entry):
        case "user":
            return Line(id, "user", text=_cut(text_of(entry["message"].get("content"))), label=label)
        case "assistant":
            return _answer(entry, label)
        case "toolResult":
            message = entry["message"]
            text, failed = _cut(text_of(message.get("content"))), message.get("isError") is True
            return Line(id, "result", str(message.get("toolName")), text, is_error=failed, label=label)
        case "bashExecution":
            message = entry["message"]
            text = _cut(str(message.get("output", "")))
            failed = bool(message.get("exitCode") or message.get("cancelled"))
            return Line(id, "result", f"! {message.get('command')}", text, is_error=failed, label=label)
    if kind == "custom_message":
        shown = entry.get("display")
        return Line(id, "message", str(entry.get("customType")), _cut(text_of(entry.get("content")))) if shown else None
    if kind in ("compaction", "branch_summary"):
        return Line(id, "note", kind.replace("_", " "), _cut(str(entry.get("summary", ""))))
    told = {"session_info": "name", "model_change": "modelId", "thinking_level_change": "thinkingLevel"}
    return Line(id, "note", kind.replace("_", " "), _cut(str(entry.get(told[kind], "")))) if kind in told else None


def _answer(entry: Entry, label: str) -> Line | None:
    message = entry["message"]
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    calls = [ToolUse(str(item.get("name")), item.get("arguments")) for item in blocks if item.get("type") == "toolCall"]
    failed = message.get("stopReason") in ("error", "aborted")
    text = text_of(content) or (str(message.get("errorMessage", "")) if failed else "")
    by = str(message.get("model") or "")
    return Line(entry["id"], "assistant", by, _cut(text), tuple(calls), failed, label) if text or calls else None


def _branches(tree: SessionTree) -> list[Branch]:
    """Return the ends of the branches that the session left, the latest first."""
    parents = {entry["parentId"] for entry in tree.entries}
    here = {entry["id"] for entry in tree.branch()}
    ends = [entry for entry in tree.entries if entry["id"] not in parents and entry["id"] not in here]
    found: list[Branch] = []
    for end in ends[::-1][:20]:
        path = [entry for entry in tree.branch(end["id"]) if entry["id"] not in here]
        words = next((text for entry in path if (text := _words(entry))), end["type"])
        found.append(Branch(end["id"], words, len(path)))
    return found


def _words(entry: Entry) -> str:
    text = text_of(entry["message"].get("content")) if role_of(entry) in ("user", "assistant") else ""
    return _cut(text.strip())[:_WORDS]


def _cut(text: str) -> str:
    shown = printable(text[: _TEXT + 1])
    return shown if len(shown) <= _TEXT else f"{shown[:_TEXT]}…"
