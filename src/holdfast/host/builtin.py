"""The tools that an agent has without any extension: pi's own, under pi's names, so that extensions recognise them."""

from __future__ import annotations

from typing import Any

from holdfast.agents import EffectClass, Tool
from holdfast.kernel.json_schema import object_schema


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _count(description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "description": description}


def _tool(
    name: str, effect: EffectClass, description: str, parameters: dict[str, Any], takes_key: bool = False
) -> Tool:
    return Tool(name, description, parameters, effect, f"holdfast:{name}", takes_key)


# Writing a whole file is safe to repeat: the same content is in place once, however often it is put there.
BUILTIN: tuple[Tool, ...] = (
    _tool(
        "read",
        "read",
        "Read a file of the project.",
        object_schema(("path",), path=_text("The file"), offset=_count("First line"), limit=_count("Number of lines")),
    ),
    _tool("ls", "read", "List a folder of the project.", object_schema((), path=_text("The folder"))),
    _tool(
        "grep",
        "read",
        "Search the project's files for a pattern.",
        object_schema(
            ("pattern",),
            pattern=_text("A regular expression"),
            path=_text("Where to search"),
            glob=_text("Only files that match"),
            ignoreCase={"type": "boolean"},
            literal={"type": "boolean"},
        ),
    ),
    _tool(
        "find",
        "read",
        "Find files of the project by a glob.",
        object_schema(("pattern",), pattern=_text("A glob"), path=_text("Where to search")),
    ),
    _tool(
        "write",
        "write",
        "Write a whole file of the project.",
        object_schema(("path", "content"), path=_text("The file"), content=_text("What it shall contain")),
        takes_key=True,
    ),
    _tool(
        "edit",
        "write",
        "Replace exact text in a file of the project.",
        object_schema(
            ("path", "edits"),
            path=_text("The file"),
            edits={
                "type": "array",
                "minItems": 1,
                "items": object_schema(
                    ("oldText", "newText"), oldText=_text("As it stands"), newText=_text("As it shall be")
                ),
            },
        ),
    ),
    _tool(
        "bash",
        "unsafe",
        "Run a shell command in the project, confined.",
        object_schema(("command",), command=_text("The command"), timeout=_count("Seconds")),
    ),
)
