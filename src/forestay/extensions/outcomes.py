"""The inputs and results of an extension's runtime, as data."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from forestay.extensions.themes import Theme
from forestay.extensions.tool_wording import ToolWords

ColorMode = Literal["truecolor", "256color"]
COLUMNS = 80
"""The default width for an extension's drawing."""


class Surroundings(
    msgspec.Struct,
    frozen=True,
    rename={"has_ui": "hasUI", "tool_words": "toolWords", "color_mode": "colorMode"},
):
    """What an extension knows about where it runs."""

    extension: str
    cwd: str
    root: str = ""
    has_ui: bool = False
    colour: bool = False
    color_mode: ColorMode = "truecolor"
    theme: Theme | None = None
    """None: the default theme, until somebody chooses another."""
    flags: dict[str, bool | str] = msgspec.field(default_factory=dict)
    tool_words: dict[str, ToolWords] = msgspec.field(default_factory=dict)


class ToolOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a tool call: pi's result, whether it is an error, and the updates that it streamed.

    `hostcall` is the code of a refused or failed host call that the tool did not catch.
    """

    content: list[Any]
    details: Any = None
    is_error: bool = False
    updates: list[Any] = msgspec.field(default_factory=list)
    hostcall: str | None = None
    problem: dict[str, Any] | None = None


class HookOutcome(msgspec.Struct, frozen=True):
    """The result of one handler: its return value (`returned` tells null from nothing) and its changes in place."""

    value: Any
    changed: Any
    returned: bool
