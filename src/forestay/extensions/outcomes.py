"""What goes into an extension's runtime and what comes out of it, as data."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from forestay.extensions.themes import Theme
from forestay.extensions.tool_wording import ToolWords

ColorMode = Literal["truecolor", "256color"]
COLUMNS = 80
"""How wide an extension draws until it is told otherwise."""


class Surroundings(
    msgspec.Struct,
    frozen=True,
    rename={"has_ui": "hasUI", "tool_words": "toolWords", "color_mode": "colorMode"},
):
    """What an extension is told about where it runs."""

    extension: str
    cwd: str
    root: str = ""
    has_ui: bool = False
    colour: bool = False
    color_mode: ColorMode = "truecolor"
    theme: Theme | None = None
    """None: the one that every extension has until somebody chooses another."""
    flags: dict[str, bool | str] = msgspec.field(default_factory=dict)
    tool_words: dict[str, ToolWords] = msgspec.field(default_factory=dict)


class ToolOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """What a tool call gave: pi's result, whether it is an error, and the updates that it streamed.

    `hostcall` is the code of a host call whose refusal or failure the tool did not catch.
    """

    content: list[Any]
    details: Any = None
    is_error: bool = False
    updates: list[Any] = msgspec.field(default_factory=list)
    hostcall: str | None = None
    problem: dict[str, Any] | None = None


class HookOutcome(msgspec.Struct, frozen=True):
    """What one handler did: what it returned (`returned` tells null from nothing), and what it changed in place."""

    value: Any
    changed: Any
    returned: bool
