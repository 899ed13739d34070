"""OpenAI and all servers with its chat completions (vLLM, Ollama, LM Studio …), called with the official package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.kernel import canonical
from forestay.models.assemble import SurrogateJoiner, ToolCallFragments, finish_reason, usage
from forestay.models.faults import Endpoint
from forestay.models.protocol import Delta, Deltas, Message, Params, ToolSpec, Usage
from forestay.models.remote import Provider

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIChat:
    """The wire of chat completions for a `Remote`."""

    def __init__(self, name: str, model: str, client: AsyncOpenAI, endpoint: Endpoint) -> None:
        self.name = name
        self.endpoint = endpoint
        self._model = model
        self._client = client
        # OpenAI's newer models refuse `max_tokens`; many compatible servers know only that name.
        self._limit_name = "max_tokens" if endpoint.own else "max_completion_tokens"

    @property
    def sdk(self) -> Any:
        import openai

        return openai

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [_message(message) for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools:
            request["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in tools
            ]
        if params.max_tokens is not None:
            request[self._limit_name] = params.max_tokens
        if params.temperature is not None:
            request["temperature"] = params.temperature
        if params.stop:
            request["stop"] = list(params.stop)
        if params.seed is not None:
            request["seed"] = params.seed
        return request

    async def deltas(self, request: dict[str, Any]) -> Deltas:
        # The package insists on a key; a server without a key gets no header.
        headers = {"Authorization": self.sdk.Omit()} if self.endpoint.key is None else None
        stream = await self._client.chat.completions.create(**request, extra_headers=headers)
        async with stream:
            async for delta in _deltas(stream):
                yield delta

    def authorise(self, key: str) -> None:
        self._client.api_key = key
        self.endpoint = msgspec.structs.replace(self.endpoint, key=key)

    async def aclose(self) -> None:
        await self._client.close()


async def _deltas(stream: AsyncIterator[Any]) -> Deltas:
    calls, characters = ToolCallFragments(), SurrogateJoiner()
    reported: str | None = None
    counted: Usage | None = None
    async for chunk in stream:
        counted = _usage(chunk) or counted
        for choice in (chunk.choices or ())[:1]:
            reported = choice.finish_reason or reported
            if choice.delta is None:
                continue
            if text := characters.feed(choice.delta.content or getattr(choice.delta, "refusal", None) or ""):
                yield Delta(text, served_by=str(getattr(chunk, "model", None) or ""))
            for part in choice.delta.tool_calls or ():
                function = part.function
                calls.add(part.index, part.id, function and function.name, function and function.arguments)
    if reported is None:
        raise ValueError("the stream ended before the answer did")
    reason = finish_reason(reported, bool(calls))
    yield Delta(characters.rest(reason == "length"), calls.finished(reason), reason, counted)


def _usage(chunk: Any) -> Usage | None:
    reported = getattr(chunk, "usage", None)
    if reported is None:
        return None
    hidden = getattr(reported.completion_tokens_details, "reasoning_tokens", None)
    return usage(reported.prompt_tokens, reported.completion_tokens, hidden)


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.content}
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.malformed or canonical.encode(call.arguments).decode(),
                },
            }
            for call in message.tool_calls
        ]
    return wire


PROVIDER = Provider(
    "OpenAI",
    "OPENAI_API_KEY",
    "openai",
    client=lambda sdk, **options: sdk.AsyncOpenAI(**options),
    # The package reads more than the key from the environment; a server at a `base_url` gets none of that.
    unsent=lambda own, keyed: ("OpenAI-Organization", "OpenAI-Project") if own else (),
    wire=lambda name, model, client, endpoint, longest: OpenAIChat(name, model, client, endpoint),
)
