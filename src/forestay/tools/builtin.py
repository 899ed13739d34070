"""The built-in tools, in one table: pi's own, under pi's names, so that extensions recognise them.

What a tool can do to the world follows from the capability that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from forestay.kernel import Problem, canonical, object_schema
from forestay.tools.tool import EffectClass, Tool

KIND = "forestay"
_EFFECTS: dict[str, EffectClass] = {"read": "read", "write": "write", "exec": "unsafe"}


class BuiltIn(msgspec.Struct, frozen=True):
    """One row: the tool, the capability that it needs, and whether it looks at everything below its path."""

    tool: Tool
    capability: Literal["read", "write", "exec"]
    below: bool = False

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Every parameter by its path: `path`, `edits.oldText`."""
        return tuple(_names(self.tool.parameters))


def _row(
    capability: Literal["read", "write", "exec"],
    name: str,
    description: str,
    parameters: dict[str, Any],
    *,
    below: bool = False,
    takes_key: bool = False,
    prepares: bool = False,
) -> BuiltIn:
    effect = _EFFECTS[capability]
    tool = Tool(name, description, parameters, effect, f"{KIND}:{name}", takes_key, prepares=prepares)
    return BuiltIn(tool, capability, below)


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _count(description: str, least: int = 1) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "description": description}


def _open(required: Sequence[str] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    """As in pi, only an edit refuses what it does not know."""
    return {"type": "object", "properties": properties, "required": list(required)}


_EDIT = object_schema(("oldText", "newText"), oldText=_text("As it stands"), newText=_text("As it shall be"))

BUILT_IN: dict[str, BuiltIn] = {
    row.tool.name: row
    for row in (
        _row(
            "read",
            "read",
            "Read a file of the project.",
            _open(("path",), path=_text("The file"), offset=_count("First line", 0), limit=_count("Number of lines")),
        ),
        _row(
            "read",
            "ls",
            "List a folder of the project.",
            _open((), path=_text("The folder"), limit=_count("At most so many entries")),
            below=True,
        ),
        _row(
            "read",
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
            below=True,
        ),
        _row(
            "read",
            "find",
            "Find files of the project by a glob.",
            _open(
                ("pattern",),
                pattern=_text("A glob"),
                path=_text("Where to search"),
                limit=_count("At most so many files"),
            ),
            below=True,
        ),
        _row(
            "write",
            "write",
            "Write a whole file of the project.",
            _open(("path", "content"), path=_text("The file"), content=_text("What it shall contain")),
            takes_key=True,  # the same content is in place once, however often it is put there
        ),
        _row(
            "write",
            "edit",
            "Replace exact text in a file of the project.",
            object_schema(
                ("path", "edits"), path=_text("The file"), edits={"type": "array", "minItems": 1, "items": _EDIT}
            ),
            prepares=True,
        ),
        _row(
            "exec",
            "bash",
            "Run a shell command in the project, confined.",
            _open(("command",), command=_text("The command"), timeout=_count("Seconds", 0)),
        ),
    )
}


def _names(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, inner in schema.get("properties", {}).items():
        yield prefix + name
        yield from _names(inner.get("items", {}), f"{prefix}{name}.")


def prepared(name: str, given: Any) -> Any:
    """A built-in tool's own preparation (Pi P15): one pair of texts, or a list written as text, is a list of edits."""
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
