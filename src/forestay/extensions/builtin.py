"""The tools that are there without any extension: pi's own, under pi's names, so that extensions recognise them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from forestay.kernel import Problem, canonical, fitted, object_schema


class BuiltIn(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    prepares: bool = False


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _count(description: str, least: int = 1) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "description": description}


def _open(required: Sequence[str] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    """As in pi, only an edit refuses what it does not know."""
    return {"type": "object", "properties": properties, "required": list(required)}


_EDIT = object_schema(("oldText", "newText"), oldText=_text("As it stands"), newText=_text("As it shall be"))

BUILT_IN: dict[str, BuiltIn] = {
    tool.name: tool
    for tool in (
        BuiltIn(
            "read",
            "Read a file of the project.",
            _open(("path",), path=_text("The file"), offset=_count("First line", 0), limit=_count("Number of lines")),
        ),
        BuiltIn(
            "ls",
            "List a folder of the project.",
            _open((), path=_text("The folder"), limit=_count("At most so many entries")),
        ),
        BuiltIn(
            "grep",
            "Search the project's files for a pattern.",
            _open(
                ("pattern",),
                pattern=_text("A regular expression"),
                path=_text("Where to search"),
                glob=_text("Only files that match"),
                ignoreCase={"type": "boolean"},
                literal={"type": "boolean"},
                context=_count("Lines around each match", 0),
                limit=_count("At most so many matches"),
            ),
        ),
        BuiltIn(
            "find",
            "Find files of the project by a glob.",
            _open(
                ("pattern",),
                pattern=_text("A glob"),
                path=_text("Where to search"),
                limit=_count("At most so many files"),
            ),
        ),
        BuiltIn(
            "write",
            "Write a whole file of the project.",
            _open(("path", "content"), path=_text("The file"), content=_text("What it shall contain")),
        ),
        BuiltIn(
            "edit",
            "Replace exact text in a file of the project.",
            object_schema(
                ("path", "edits"), path=_text("The file"), edits={"type": "array", "minItems": 1, "items": _EDIT}
            ),
            prepares=True,
        ),
        BuiltIn(
            "bash",
            "Run a shell command in the project, confined.",
            _open(("command",), command=_text("The command"), timeout=_count("Seconds", 0)),
        ),
    )
}


def prepared(name: str, given: Any) -> Any:
    """A built-in tool's own preparation (P15): one pair of texts, or a list written as text, is a list of edits."""
    if name != "edit" or not isinstance(given, Mapping):
        return given
    edits = given.get("edits")
    if isinstance(edits, str):
        try:
            edits = canonical.decode(edits)
        except Problem:
            return given
    rest = {key: value for key, value in given.items() if key not in ("edits", "oldText", "newText")}
    if isinstance(given.get("oldText"), str) and isinstance(given.get("newText"), str):
        pair = {"oldText": given["oldText"], "newText": given["newText"]}
        return {**rest, "edits": [*(edits if isinstance(edits, list) else []), pair]}
    return {**given, "edits": edits} if "edits" in given else given


def arguments(tool: BuiltIn, given: Any) -> Any:
    """The arguments as the tool has them, on whatever way they came: prepared, converted, validated."""
    return fitted(tool.name, tool.parameters, prepared(tool.name, given))
