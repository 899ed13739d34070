"""The parts of a request that OpenAI's and Anthropic's interfaces share: texts, roles, the caller's own tools."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forestay.kernel import Problem
from forestay.models import Message, ToolSpec
from forestay.surface.completions.answering import unsupported

NO_FORM = "An answer's form is the agent's own: give its manifest a return schema."


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a request. Unknown fields are ignored: the agent's manifest decides how it samples."""


class Part(Given, frozen=True):
    type: str
    text: str | None = None


Content = str | list[Part] | None
ToolName = Annotated[str, Meta(min_length=1, max_length=128)]


def text_of(content: Content, at: str) -> str:
    """Return the text of a message; refuse a part of another kind."""
    if content is None or isinstance(content, str):
        return content or ""
    for number, part in enumerate(content):
        if part.text is None:
            raise unsupported(f"{at}[{number}]", f"Agents read text, not {part.type[:40]!r}.")
    return "".join(part.text or "" for part in content)


def spoken(role: str | None, text: str, at: str) -> Message:
    """Return a message without tool calls."""
    match role:
        case "user" | "assistant":
            return Message(role, text)
        case "system" | "developer":
            return Message("system", text)
    raise Problem("schema_mismatch", f"There is no role {str(role)[:40]!r}.", at=f"{at}.role")


def own_tool(name: str, description: str | None, parameters: dict[str, Any] | None) -> ToolSpec:
    """Return a tool of the caller in the form that a model gets."""
    return ToolSpec(name, description or "", parameters or {"type": "object", "properties": {}})


def no_function(number: int) -> Problem:
    return unsupported(f"$.tools[{number}]", "A tool of the caller is a function.")


def check_choice(tool_choice: str | dict[str, Any] | None) -> None:
    """Refuse a tool choice of the caller: the agent chooses its tools."""
    if tool_choice not in (None, "auto", "none"):
        raise unsupported("$.tool_choice", "The agent chooses its tools: `auto` or `none`.")
