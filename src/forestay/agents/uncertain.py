"""A tool that was begun and not recorded when the process died: a person says what to do, it is never guessed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from forestay.agents.ports import ApprovalAnswer, ApprovalRequest, Approvals, Tool
from forestay.kernel import Problem

T = TypeVar("T")


async def once_or_ask(
    key: str,
    perform: Callable[[str], Awaitable[T]],
    approvals: Approvals,
    tool: Tool,
    arguments: dict[str, Any],
    *,
    otherwise: str,
    rejected: Callable[[ApprovalAnswer, Problem], T],
    **known: Any,
) -> T:
    """`perform(key)`; where nobody knows whether it was done, it is asked about and runs again under another key, or
    `rejected` says what to go on with. `otherwise` tells the person what a rejection does."""
    while True:
        try:
            return await perform(key)
        except Problem as problem:
            if problem.key != "effect_uncertain":
                raise
            request = ApprovalRequest(
                "uncertain-effect",
                f"Was {tool.name} done? The process died while it ran.",
                f"Accept to run it again; reject to {otherwise}",
                tool=tool.name,
                arguments=arguments,
                known={**known, "effect": tool.effect, **problem.details},
            )
            answer = await approvals.ask(f"{key}/uncertain", request)
            if answer.action == "reject":
                return rejected(answer, problem)
            key += "/again"
