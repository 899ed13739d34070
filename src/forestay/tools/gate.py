"""Policy before a tool call: the kernel's evaluator, asked about a tool by its effect class.

K1  A tool that only computes or reads is allowed unless the settings deny it; every other goes by the mode.
K2  A denial wins over an allowance.
K3  Every decision is a record of the stream `audit`, written before the call.
K4  The name of a built-in tool allows that one only: what an extension puts in its place is allowed by its own id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, Protocol

from forestay.kernel import AUDIT, Agents, Append, Clock, Decision, Draft, Grant, Policy, Request
from forestay.tools.builtin import BUILT_IN
from forestay.tools.tool import Tool


class Gate(Protocol):
    """Policy, asked before every tool call."""

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision: ...


Write = Callable[[Append], Awaitable[object]]
"""Writes an append to disk, alone or together with the caller's own records, and then returns."""


class ToolGate:
    """The gate of one subject, an agent or a workflow; `about` says in the record where the call comes from."""

    def __init__(
        self, settings: Agents, write: Write, clock: Clock, subject: str, about: dict[str, Any] | None = None
    ) -> None:
        self._settings = settings
        self._write = write
        self._clock = clock
        self._subject = subject
        self._about = about or {}

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        decision = gated(self._settings, self._clock, self._subject, tool)
        said = {"tool": tool.id or tool.name, "effect": decision.effect, "rule": decision.rule}
        payload = {**self._about, **decision.evidence, **said, "reason": decision.reason}
        await self._write(Append(AUDIT, [Draft("policy.decision", payload)]))
        return decision


def gated(settings: Agents, clock: Clock, subject: str, tool: Tool) -> Decision:
    """What the settings say about a tool and a subject (K1, K2)."""
    grant = Grant(f"tool.{tool.effect}", methods=(tool.name,))
    policy = Policy(settings.mode, defaults=[Grant("tool.pure"), Grant("tool.read")], clock=clock)
    if any(_fits(name, settings.allow) for name in (tool.id, "" if _is_replacement(tool) else tool.name)):
        policy = policy.allowing(subject, grant)
    if any(_fits(name, settings.deny) for name in (tool.id, tool.name)):
        policy = policy.denying(subject, grant)
    return policy.decide(Request(subject, grant.capability, tool.name))


def _is_replacement(tool: Tool) -> bool:
    """K4."""
    return tool.name in BUILT_IN and tool.id != BUILT_IN[tool.name].tool.id


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns if name)
