"""Asking a person about a tool call: the question, the answer, and what the answer means for the call."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from forestay.kernel import Problem
from forestay.tools.tool import Tool


class ApprovalRequest(msgspec.Struct, frozen=True):
    """A question for a person. `actions` are the answers that mean something here."""

    kind: Literal["approval", "uncertain-effect", "low-confidence"]
    title: str
    reason: str
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    known: dict[str, Any] = {}
    actions: tuple[str, ...] = ("accept", "reject")


class ApprovalAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the person said; `edit-accept` carries other arguments."""

    action: Literal["accept", "reject", "edit-accept"]
    arguments: dict[str, Any] | None = None
    note: str = ""


class Approvals(Protocol):
    """Interrupts of a run. A key is asked at most once in the life of the run (OpenWOP §1.8)."""

    async def ask(self, key: str, request: ApprovalRequest) -> ApprovalAnswer:
        """The answer; while there is none this waits, or leaves by an exception that suspends the node."""


async def approved(
    approvals: Approvals, key: str, caller: str, tool: Tool, arguments: dict[str, Any], reason: str, **known: Any
) -> ApprovalAnswer:
    """What a person says of the call. Edited arguments are validated; arguments that do not fit are a rejection."""
    request = ApprovalRequest(
        "approval",
        f"May the {caller} call {tool.name}?",
        reason,
        tool=tool.name,
        arguments=arguments,
        known={**known, "effect": tool.effect},
        actions=("accept", "reject", "edit-accept"),
    )
    answer = await approvals.ask(key, request)
    if answer.action != "edit-accept":
        return ApprovalAnswer(answer.action, note=answer.note)
    try:
        return ApprovalAnswer("edit-accept", tool.fit(answer.arguments or {}), answer.note)
    except Problem as problem:
        return ApprovalAnswer("reject", note=f"The edited arguments do not fit: {problem.message}")
