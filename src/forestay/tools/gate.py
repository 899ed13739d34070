"""Policy before a tool call: the kernel's evaluator, asked about a tool by its effect class.

K1  A tool that only computes or reads is allowed unless the settings deny it; every other goes by the mode.
K2  A denial wins over an allowance.
K3  Every decision is a record of the stream `audit`, written before the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Protocol

from forestay.kernel import AUDIT, Agents, Clock, Decision, Draft, Grant, Ledger, Policy, Request
from forestay.tools.tool import Tool


class Gate(Protocol):
    """Policy, asked before every tool call."""

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision: ...


class ToolGate:
    """The gate of one subject, an agent or a workflow; `about` says in the record where the call comes from."""

    def __init__(
        self, settings: Agents, ledger: Ledger, clock: Clock, subject: str, about: dict[str, Any] | None = None
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._subject = subject
        self._about = about or {}

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        decision = gated(self._settings, self._clock, self._subject, tool)
        said = {"tool": tool.id or tool.name, "effect": decision.effect, "rule": decision.rule}
        payload = {**self._about, **decision.evidence, **said, "reason": decision.reason}
        await self._ledger.append(AUDIT, [Draft("policy.decision", payload)])
        return decision


def gated(settings: Agents, clock: Clock, subject: str, tool: Tool) -> Decision:
    """What the settings say about a tool and a subject (K1, K2)."""
    grant = Grant(f"tool.{tool.effect}", methods=(tool.name,))
    policy = Policy(settings.mode, defaults=[Grant("tool.pure"), Grant("tool.read")], clock=clock)
    if _named(tool, settings.allow):
        policy = policy.allowing(subject, grant)
    if _named(tool, settings.deny):
        policy = policy.denying(subject, grant)
    return policy.decide(Request(subject, grant.capability, tool.name))


def _named(tool: Tool, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in (tool.id, tool.name) if name for pattern in patterns)
