"""The wording of the built-in tools: data of the host, from a file or from the project's own texts.

An extension that wraps a built-in tool passes its wording on to the model. A host that must use the same words as
another host gets that host's wording; the tools themselves stay the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay.kernel import Problem, canonical
from forestay.tools import BUILT_IN

_MAX_FILE = 1024 * 1024


class ToolWords(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The wording of one tool; a field that is left out keeps our words, null removes the text.

    `parameters` names a parameter by its path: `path`, `edits.oldText`.
    """

    label: str | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET
    parameters: dict[str, str] = {}
    prompt_snippet: str | msgspec.UnsetType | None = msgspec.UNSET
    prompt_guidelines: list[str] | msgspec.UnsetType | None = msgspec.UNSET


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of words, `forestay.tool-words.v1`."""

    schema: Literal["forestay.tool-words.v1", "holdfast.tool-words.v1"]  # the second: files of 0.1
    tools: dict[str, ToolWords]


def read_wording(path: Path) -> dict[str, ToolWords]:
    """Read a file of wording; a tool that is not built in is an error, because its words would have no effect."""
    if not path.is_file():
        raise Problem("not_found", f"There is no {path.name}.", fix="Name a file with the wording of the tools.")
    return checked_wording(canonical.decode(path.read_bytes(), Wording, limit=_MAX_FILE))


def checked_wording(wording: Wording) -> dict[str, ToolWords]:
    """Return the words by tool; check that every tool and parameter exists."""
    for name, words in wording.tools.items():
        if name not in BUILT_IN:
            raise Problem(
                "schema_mismatch",
                f"There is no built-in tool {name[:80]}.",
                at=f"tools.{name[:80]}",
                tools=sorted(BUILT_IN),
            )
        known = BUILT_IN[name].parameter_names
        for parameter in words.parameters:
            if parameter not in known:
                raise Problem(
                    "schema_mismatch",
                    f"The tool {name} has no parameter {parameter[:80]}.",
                    at=f"tools.{name}.parameters.{parameter[:80]}",
                    parameters=list(known),
                )
    return dict(wording.tools)


def wording_of(described: dict[str, Any]) -> dict[str, ToolWords]:
    """Return the wording of a host that described its tools: name to description, parameters and prompt texts."""
    return checked_wording(msgspec.convert({"schema": "forestay.tool-words.v1", "tools": described}, Wording))
