"""The extensions' hooks as the agent loop takes them: pi's merged answers, each in the shape that the loop reads."""

from __future__ import annotations

from typing import Any

from holdfast.agents.pi import text_of
from holdfast.extensions.suite import Suite


class SuiteHooks:
    """`agents.Hooks` over the loaded extensions."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite

    def listens(self, event: str) -> bool:
        return self._suite.hooks.listening(event)

    async def emit(self, event: dict[str, Any]) -> dict[str, Any] | None:
        answer = await self._suite.emit(event)
        if event["type"] == "context":
            return {"messages": answer} if isinstance(answer, list) else None
        if not isinstance(answer, dict):
            return None
        return _begun(answer) if event["type"] == "before_agent_start" else answer


def _begun(answer: dict[str, Any]) -> dict[str, Any]:
    """Several extensions may each add a message before the agent starts; the loop takes one, so they become one."""
    messages = answer.get("messages")
    if not messages:
        return answer
    text = "\n\n".join(text_of(message.get("content")) for message in messages if isinstance(message, dict))
    return {**answer, "message": {"role": "user", "content": text}}
