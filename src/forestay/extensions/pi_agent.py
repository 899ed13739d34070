"""The agent behind the `pi` program: a conversation whose model and tool calls are host calls of its extension.

I1  It may do what its extension may: each model request and each tool call is a host call of that extension. Its
    policy decides, its tokens and quotas count, and its evidence records the call.
I2  It ends: with an answer, with an error, or after MOST_TURNS answers.
I3  Nothing is stored: it has no session, no extensions and no memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from forestay.agents import text_of
from forestay.extensions.protocol import HostCall, HostCalls
from forestay.kernel import Problem
from forestay.tools import BUILT_IN

MOST_TURNS = 50
INSTRUCTIONS = "You are a coding agent. You work in the folder {cwd}. Use the tools that you have, then answer."


class Door(NamedTuple):
    """The host calls of one program: its extension, and the prefix of its call ids."""

    calls: HostCalls
    extension: str
    id: str

    async def ask(
        self, number: int, method: str, params: dict[str, Any], heard: Callable[[Any], None] = lambda _part: None
    ) -> Any:
        """Make one host call; return its output or raise its Problem."""
        request = HostCall(f"{self.id}:{number}", "", method, params)
        output: Mapping[str, Any] = {}
        async for part in self.calls.call(request, self.extension):
            if part.error is not None:
                raise Problem("extension_failed", part.error.message, code=part.error.code)
            if part.chunk is not None and not part.chunk.is_last:
                heard(part.output)
            output = part.output or output
        return output


class Terms(NamedTuple):
    """The agent's setup: its folder, model, instructions and built-in tools."""

    cwd: str
    model: Mapping[str, Any] | None = None
    system: str = ""
    tools: Sequence[str] = tuple(BUILT_IN)


class PiAgent:
    """One conversation; `tell` receives its events, as pi's modes print them."""

    def __init__(self, door: Door, terms: Terms, tell: Callable[[dict[str, Any]], None], now_ms: Callable[[], int]):
        self._door = door
        self._tell = tell
        self._now_ms = now_ms
        self._calls = 0
        self.terms = terms
        self.steering: list[str] = []
        """Messages that arrive while it works; it reads one after each round of tool calls."""
        self.messages: list[dict[str, Any]] = []

    @property
    def last_text(self) -> str:
        """The agent's last text."""
        said = [message for message in self.messages if message["role"] == "assistant"]
        return text_of(said[-1]["content"]) if said else ""

    async def prompt(self, text: str) -> dict[str, Any]:
        """Send a message and let the agent work; return its last answer (I2)."""
        start = len(self.messages)
        self._tell({"type": "agent_start"})
        self._said({"role": "user", "content": [{"type": "text", "text": text}]})
        for _ in range(MOST_TURNS):
            self._tell({"type": "turn_start"})
            answer = await self._answer()
            self._said(answer)
            calls = [block for block in answer["content"] if block.get("type") == "toolCall"]
            results = [await self._result(call) for call in calls]
            self._tell({"type": "turn_end", "message": answer, "toolResults": results})
            if self.steering and answer.get("stopReason") != "error":
                self._said({"role": "user", "content": [{"type": "text", "text": self.steering.pop(0)}]})
            elif not calls:
                break
        self._tell({"type": "agent_end", "messages": self.messages[start:]})
        return self.messages[-1]

    async def ask(self, method: str, params: dict[str, Any], heard: Callable[[Any], None] = lambda _part: None) -> Any:
        """Make a host call as the extension (I1)."""
        self._calls += 1
        return await self._door.ask(self._calls, method, params, heard)

    async def _answer(self) -> dict[str, Any]:
        known = [BUILT_IN[name].tool for name in self.terms.tools if name in BUILT_IN]
        context = {
            "systemPrompt": "\n\n".join(part for part in (_instructions(self.terms), self.terms.system) if part),
            "messages": self.messages,
            "tools": [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in known],
        }
        partial = {"role": "assistant", "content": [{"type": "text", "text": ""}]}

        def heard(part: Any) -> None:
            if part.get("delta"):
                partial["content"][0]["text"] += part["delta"]  # type: ignore[index]
                change = {"type": "text_delta", "contentIndex": 0, "delta": part["delta"]}
                self._tell({"type": "message_update", "message": partial, "assistantMessageEvent": change})

        params = {"op": "complete", "context": context, "stream": True}
        if self.terms.model is not None:
            params["model"] = dict(self.terms.model)
        try:
            found = await self.ask("model", params, heard)
            message = found["message"]
        except Problem as problem:
            message = {"content": [], "stopReason": "error", "errorMessage": problem.message}
        return {"role": "assistant", "api": "forestay", **message}

    async def _result(self, call: Mapping[str, Any]) -> dict[str, Any]:
        id, name, arguments = str(call.get("id")), str(call.get("name")), call.get("arguments") or {}
        about = {"toolCallId": id, "toolName": name}
        self._tell({"type": "tool_execution_start", **about, "args": arguments})
        try:
            if name not in self.terms.tools:
                raise Problem("not_found", f"Tool {name[:80]} not found")
            found = await self.ask("tool", {"name": name, "input": arguments})
            result = {"content": found.get("content") or [], "details": found.get("details")}
            failed = False
        except Problem as problem:
            result, failed = {"content": [{"type": "text", "text": problem.message}], "details": {}}, True
        self._tell({"type": "tool_execution_end", **about, "result": result, "isError": failed})
        message = {"role": "toolResult", **about, **result, "isError": failed}
        self._said(message)
        return message

    def _said(self, message: dict[str, Any]) -> None:
        message.setdefault("timestamp", self._now_ms())
        self.messages.append(message)
        self._tell({"type": "message_start", "message": message})
        self._tell({"type": "message_end", "message": message})


def _instructions(terms: Terms) -> str:
    return INSTRUCTIONS.format(cwd=terms.cwd)
