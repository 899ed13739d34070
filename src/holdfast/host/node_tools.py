"""Tools for the nodes of a workflow (`core.tool`): the same tools and the same gate as an agent's, with nobody to ask.

A workflow says which tool it calls, so a person read that before it ran; what policy would ask about is refused all the
same, unless `agents.allow` names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.agents.arguments import fitted
from holdfast.host.builtin import BUILTIN
from holdfast.host.extensions import ProjectExtensions
from holdfast.host.gate import PolicyGate
from holdfast.host.tools import AgentTools
from holdfast.kernel.clock import Clock
from holdfast.kernel.config import Agents
from holdfast.kernel.ledger import Ledger
from holdfast.kernel.problems import Problem
from holdfast.runs.ports import Caller
from holdfast.runs.service import Runs

_SUBJECT = "core.holdfast.workflow"


class NodeTools:
    """`runs.ToolSource`."""

    def __init__(
        self,
        extensions: ProjectExtensions,
        settings: Agents,
        ledger: Ledger,
        clock: Clock,
        *,
        runs: Callable[[], Runs],
    ) -> None:
        self._extensions = extensions
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._runs = runs

    def names(self) -> list[str]:
        """The tools that are known without opening anything, and those of extensions that run already."""
        suite = self._extensions.opened
        return [tool.name for tool in BUILTIN] + ([tool.name for tool in suite.tools()] if suite is not None else [])

    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller) -> Any:
        suite = await self._extensions.suite()
        source = AgentTools(
            suite, self._runs(), subject=_SUBJECT, tenant=caller.tenant, scope=caller.run_id, consents=False
        )
        offered = await source.tools()
        found = next((item for item in offered if tool in (item.name, item.id)), None)
        if found is None:
            raise Problem("not_found", f"There is no tool {tool[:80]}.", tools=sorted(item.name for item in offered))
        arguments = fitted(found, arguments)
        about = {"runId": caller.run_id, "nodeId": caller.node_id}
        verdict = await PolicyGate(self._settings, self._ledger, self._clock, _SUBJECT, about).decide(found, arguments)
        if verdict.effect != "allow":
            fix = f"Name {found.name} in agents.allow."
            raise Problem("capability_denied", verdict.reason, tool=found.name, fix=fix)
        outcome = await source.call(
            found, arguments, call_id=caller.idempotency_key, idempotency_key=caller.idempotency_key, update=_unheard
        )
        if outcome.is_error:
            raise Problem("extension_failed", outcome.content[:2000], tool=found.name)
        return {"output": outcome.content, "details": outcome.details}


async def _unheard(partial: Any) -> None:
    """A node has nobody who watches a tool work."""
