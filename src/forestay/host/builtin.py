"""The built-in tools as an agent has them: what each can do to the world."""

from __future__ import annotations

from forestay.agents import EffectClass, Tool
from forestay.extensions import BUILT_IN

# Writing a whole file is safe to repeat: the same content is in place once, however often it is put there.
_EFFECTS: dict[str, EffectClass] = {"write": "write", "edit": "write", "bash": "unsafe"}

BUILTIN: tuple[Tool, ...] = tuple(
    Tool(
        tool.name,
        tool.description,
        tool.parameters,
        _EFFECTS.get(tool.name, "read"),
        f"forestay:{tool.name}",
        takes_key=tool.name == "write",
        prepares=tool.prepares,
    )
    for tool in BUILT_IN.values()
)
