"""Anthropic's models, called with the official package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.models.assemble import SurrogateJoiner, ToolCallFragments, finish_reason, usage
from forestay.models.faults import Endpoint
from forestay.models.protocol import Delta, Deltas, Message, Params, ToolSpec
from forestay.models.remote import Provider

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

# The protocol needs a limit in every request; every model accepts this one.
_DEFAULT_MAX_TOKENS = 4_096


class AnthropicMessages:
    """The wire of the Messages API for a `Remote`. It sends no seed and no temperature."""

    def __init__(
        self, name: str, model: str, client: AsyncAnthropic, endpoint: Endpoint, max_output_tokens: int | None
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self._model = model
        self._client = client
        self._max_tokens = max_output_tokens or _DEFAULT_MAX_TOKENS

    @property
    def sdk(self) -> Any:
        import anthropic

        return anthropic

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "max_tokens": params.max_tokens or self._max_tokens,
            "stream": True,
            **_conversation(messages, tools),
        }
        if params.stop:
            request["stop_sequences"] = list(params.stop)
        return request

    async def deltas(self, request: dict[str, Any]) -> Deltas:
        stream = await self._client.messages.create(**request)
        async with stream:
            async for delta in _deltas(stream):
                yield delta

    async def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
        answer = await self._client.messages.count_tokens(model=self._model, **_conversation(messages, tools))
        return answer.input_tokens

    def authorise(self, key: str) -> None:
        self._client.api_key = key
        self.endpoint = msgspec.structs.replace(self.endpoint, key=key)

    async def aclose(self) -> None:
        await self._client.close()


async def _deltas(stream: AsyncIterator[Any]) -> Deltas:
    calls, characters = ToolCallFragments(), SurrogateJoiner()
    reported: str | None = None
    input_tokens: Any = None
    output_tokens: Any = None
    hidden: Any = None
    served_by = ""
    ended = False
    async for event in stream:
        if event.type == "message_start":
            input_tokens = _input_tokens(event.message.usage)
            served_by = str(getattr(event.message, "model", None) or "")
        elif event.type == "content_block_start" and event.content_block.type == "tool_use":
            calls.add(event.index, event.content_block.id, event.content_block.name, None)
        elif event.type == "content_block_start" and event.content_block.type == "text":
            if text := characters.feed(event.content_block.text):
                yield Delta(text, served_by=served_by)
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            if text := characters.feed(event.delta.text):
                yield Delta(text, served_by=served_by)
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            calls.add(event.index, None, None, event.delta.partial_json)
        elif event.type == "message_delta":
            reported = event.delta.stop_reason or reported
            output_tokens = event.usage.output_tokens
            hidden = getattr(event.usage.output_tokens_details, "thinking_tokens", None)
            if event.usage.input_tokens is not None:  # cumulative when the service reports it again
                input_tokens = _input_tokens(event.usage)
        elif event.type == "message_stop":
            ended = True
    if reported is None or not ended:
        raise ValueError("the stream ended before the answer did")
    reason = finish_reason(reported, bool(calls))
    yield Delta(
        characters.rest(reason == "length"), calls.finished(reason), reason, usage(input_tokens, output_tokens, hidden)
    )


def _input_tokens(reported: Any) -> int | None:
    """Return all tokens that were read, from a cache or not: the protocol's three counts do not overlap."""
    counts = (reported.input_tokens, reported.cache_creation_input_tokens or 0, reported.cache_read_input_tokens or 0)
    return sum(counts) if all(isinstance(count, int) and count >= 0 for count in counts) else None


def _conversation(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    request: dict[str, Any] = {"messages": _turns(messages)}
    system = [message.content for message in messages if message.role == "system" and message.content]
    if system:
        request["system"] = "\n\n".join(system)
    if tools:
        request["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools
        ]
    return request


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Alternate user and assistant: tool results become blocks of the user, neighbours of one role one message."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": message.content}]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.content}] if message.content else []
    blocks.extend(
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in message.tool_calls
    )
    return blocks


PROVIDER = Provider(
    "Anthropic",
    "ANTHROPIC_API_KEY",
    "anthropic",
    client=lambda sdk, **options: sdk.AsyncAnthropic(**options),
    unsent=lambda own, keyed: () if keyed else ("X-Api-Key", "Authorization"),
    wire=AnthropicMessages,
)
