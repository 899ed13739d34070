"""The agent's life as pi's extensions see it: event payloads in pi's shape, and messages there and back.

Order in one invocation, as the real runtime keeps it:

    before_agent_start, agent_start,
      turn_start, message_start and message_end of the prompt (first turn),
        context, context_with_system, before_provider_request, after_provider_response,
        message_start, message_update …, message_end,
        for each tool call: tool_execution_start, tool_call, tool_execution_update …, tool_result, tool_execution_end,
                            message_start and message_end of its result,
      turn_end, …
    agent_end
"""

from __future__ import annotations

from typing import Any

from forestay.models import Message, Role, ToolCall

_FROM_PI: dict[str, Role] = {"user": "user", "assistant": "assistant", "toolResult": "tool", "system": "system"}


def to_pi(message: Message) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": message.content}] if message.content else []
    if message.role == "tool":
        return {"role": "toolResult", "toolCallId": message.tool_call_id, "content": content}
    content += [
        {"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    made: dict[str, Any] = {"role": message.role, "content": content}
    return made | {"task": True} if message.task else made


def from_pi(message: Any) -> Message | None:
    """A message that an extension made; None when it is none."""
    if not isinstance(message, dict):
        return None
    role = _FROM_PI.get(str(message.get("role", "user")), "user")
    content = message.get("content", "")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    calls = tuple(
        ToolCall(str(block.get("id", "")), str(block.get("name", "")), dict(block.get("arguments") or {}))
        for block in blocks
        if block.get("type") == "toolCall"
    )
    call_id = message.get("toolCallId")
    call_id = call_id if isinstance(call_id, str) else None
    return Message(role, text_of(content), calls, call_id, task=role == "user" and message.get("task") is True)


def text_of(content: Any) -> str:
    """The text of a pi content: a string, or a list of blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(block.get("text", "")) for block in content if isinstance(block, dict) and "text" in block)


def blocks_of(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]
