"""A conversation that its caller keeps: each answer is a run, which is given what was said and the caller's own tools.

G1  What was said before and the caller's tools are inputs of the run: a replay has the same ones.
G2  The caller's tools are offered to the model and called by the caller. The run ends when it is the caller's turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from forestay.agents import CALLER, Interjection
from forestay.kernel import Problem
from forestay.models import Message, ToolSpec
from forestay.tools import Tool, ToolOutcome, ToolSource, Update

COMPLETION: dict[str, Any] = {
    "id": "forestay-completion",
    "name": "Answer in a conversation",
    "version": "1.0.0",
    "description": "An agent gives the next answer of a conversation that its caller keeps.",
    "nodes": [
        {
            "id": "agent",
            "typeId": "core.agent",
            "name": "Agent",
            "position": {"x": 0, "y": 0},
            "config": {"context": True},
            "inputs": {
                "task": {"type": "variable", "variableName": "question"},
                "agentId": {"type": "variable", "variableName": "agentId"},
                "conversation": {"type": "variable", "variableName": "conversation"},
            },
            "outputRole": "primary",
        }
    ],
    "edges": [],
    "triggers": [{"id": "manual", "type": "manual"}],
    "variables": [
        {"name": "question", "type": "string", "required": True},
        {"name": "agentId", "type": "string", "required": True},
        {"name": "conversation", "type": "object", "required": True},
    ],
    "metadata": {},
    "settings": {},
}


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was said before the question, the tools that the caller has, and what it wants kept in mind this time."""

    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    instructions: str = ""


def conversation_of(given: Any) -> Conversation:
    """The conversation that a node is given."""
    try:
        return msgspec.convert(given, Conversation)
    except msgspec.ValidationError as error:
        raise Problem("schema_mismatch", str(error), at="$.inputs.conversation") from error


class GivenTranscript:
    """`agents.Transcript` of a conversation that the caller keeps (G1): nothing is kept here."""

    source = "rpc"
    hears = False

    def __init__(self, conversation: Conversation) -> None:
        told = conversation.instructions
        self._messages = [*([Message("system", told)] if told else ()), *conversation.messages]

    def leaf(self) -> str | None:
        return "given" if self._messages else None

    def history(self, leaf: str) -> list[Message]:
        return list(self._messages)

    async def take(self, place: str, entry: dict[str, Any]) -> None:
        """The caller has the answer, and says it again the next time."""

    def is_recorded(self, *keys: str) -> bool:
        return False

    async def waiting(self) -> Sequence[Interjection]:
        return ()

    async def hear(self, entries: Sequence[tuple[str, dict[str, Any]]], met: Sequence[str]) -> None:
        """Nobody speaks to it meanwhile."""


class CallerTools(ToolSource):
    """The tools of the caller, described here and called there (G2), and behind them the host's own: of two with one
    name, the one that was brought along is meant."""

    kind = ""

    def __init__(self, specs: Sequence[ToolSpec], own: ToolSource) -> None:
        self._own = own
        self._brought = [
            Tool(spec.name, spec.description, spec.parameters, "unsafe", f"{CALLER}:{spec.name}") for spec in specs
        ]

    async def list(self) -> Sequence[Tool]:
        return [*self._brought, *await self._own.list()]

    async def prepare(self, tool: Tool, arguments: Any) -> Any:
        return await self._own.prepare(tool, arguments)

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        return await self._own.call(tool, arguments, call_id=call_id, idempotency_key=idempotency_key, update=update)
