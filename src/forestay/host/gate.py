"""Policy before a tool call: the one evaluator of the kernel, asked about a tool by its effect class.

K1  A tool that only computes or reads is allowed unless somebody denied it; every other goes by the mode.
K2  A denial wins over an allowance.
K3  Every decision is a record of the stream `audit`, written before the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from forestay.agents import Tool, Verdict
from forestay.kernel import Agents, Clock, Decision, Draft, Grant, Ledger, Policy, Request

AUDIT = "audit"


class PolicyGate:
    """`agents.Gate` for one subject; `about` says in the record where the call comes from."""

    def __init__(
        self, settings: Agents, ledger: Ledger, clock: Clock, subject: str, about: dict[str, Any] | None = None
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._subject = subject
        self._about = about or {}
        self._policy = Policy(settings.mode, defaults=[Grant("tool.pure"), Grant("tool.read")], clock=clock)

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Verdict:
        decision = self.decision(tool)
        said = {"tool": tool.id or tool.name, "effect": decision.effect, "rule": decision.rule}
        payload = {**self._about, **decision.evidence, **said, "reason": decision.reason}
        await self._ledger.append(AUDIT, [Draft("policy.decision", payload)])
        if decision.effect in ("deny", "prompt"):
            return Verdict("deny" if decision.effect == "deny" else "prompt", decision.reason)
        return Verdict("allow", decision.reason)

    def decision(self, tool: Tool) -> Decision:
        grant = Grant(f"tool.{tool.effect}", methods=(tool.name,))
        policy = self._policy
        if _named(tool, self._settings.allow):
            policy = policy.allowing(self._subject, grant)
        if _named(tool, self._settings.deny):
            policy = policy.denying(self._subject, grant)
        return policy.decide(Request(self._subject, grant.capability, tool.name))


def _named(tool: Tool, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in (tool.id, tool.name) if name for pattern in patterns)
