"""Gives extensions the host's models: translates pi-ai's `complete()` and `stream()` to the model protocol.

E1  An extension names a model. It gets that model, or a Problem that lists the models. Keys stay with the host.
E2  The provider's token counts are in the answer and, through the connector, in the evidence. Nothing is estimated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from forestay.agents import from_pi
from forestay.host.models import HostModels, identity
from forestay.kernel import Problem
from forestay.models import (
    Completion,
    Delta,
    FinishReason,
    Message,
    OpenModel,
    Params,
    ToolCall,
    ToolSpec,
    Usage,
    whole,
)

API = "forestay"
_STOPS: dict[FinishReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "content_filter": "error",
    "error": "error",
}


class ExtensionModel:
    """`extensions.Model` over the models of the configuration."""

    def __init__(self, models: HostModels) -> None:
        self._models = models

    async def models(self) -> list[Mapping[str, Any]]:
        return [_described(model) for model in self._models.all()]  # the default first

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        model = self._chosen(request.get("model"))
        context = request.get("context")
        messages = _messages(context if isinstance(context, Mapping) else {})
        tools = _tools(context.get("tools") if isinstance(context, Mapping) else None)
        texts: list[str] = []
        calls: list[ToolCall] = []
        last = Delta()
        async with aclosing(model.stream(messages, tools=tools, params=_params(request.get("options")))) as deltas:
            async for delta in deltas:
                if text := whole(delta.text):
                    texts.append(text)
                    yield {"delta": text}
                calls.extend(delta.tool_calls)
                last = delta
        if last.finish_reason is None:
            raise Problem("provider_error", "The model's answer broke off before its end.")
        yield _answer(model, Completion("".join(texts), tuple(calls), last.finish_reason, last.usage))

    def _chosen(self, named: Any) -> OpenModel:
        """Return the named model; the default when none is named (E1)."""
        wanted = named if isinstance(named, Mapping) else {}
        if not wanted.get("provider") and not wanted.get("id"):
            return self._models.default
        offered: dict[tuple[str, str], OpenModel] = {}
        for model in self._models.all():  # of two with one identity, extensions see the first
            offered.setdefault(identity(model), model)
        found = offered.get((str(wanted.get("provider")), str(wanted.get("id"))))
        if found is None:
            raise Problem(
                "not_found",
                f"There is no model {wanted.get('provider')}/{wanted.get('id')} here.",
                models=["/".join(name) for name in offered],
                fix="Use one of `models` (`ctx.model`, `getModels()`), or configure it in [models].",
            )
        return found


def _described(model: OpenModel) -> dict[str, Any]:
    """Describe a model in pi's form. The host does not know a provider's prices: the costs are 0."""
    provider, name = identity(model)
    return {
        "id": name,
        "name": model.name,
        "provider": provider,
        "api": API,
        "baseUrl": "",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": model.context_window,
        "maxTokens": model.max_output_tokens or model.context_window,
    }


def _messages(context: Mapping[str, Any]) -> list[Message]:
    given = context.get("messages")
    found = [from_pi(item) for item in given] if isinstance(given, list) else []
    messages = [item for item in found if item is not None]
    system = context.get("systemPrompt")
    if isinstance(system, str) and system:
        messages.insert(0, Message("system", system))
    if not any(message.role != "system" for message in messages):
        raise Problem("invalid_request", "There is no message to answer.", at="$.params.context.messages")
    return messages


def _tools(given: Any) -> list[ToolSpec]:
    tools = given if isinstance(given, list) else []
    named = [item for item in tools if isinstance(item, Mapping) and item.get("name")]
    return [
        ToolSpec(str(item["name"]), str(item.get("description", "")), item.get("parameters") or {"type": "object"})
        for item in named
    ]


def _params(options: Any) -> Params:
    given = options if isinstance(options, Mapping) else {}
    tokens, warmth, stops = given.get("maxTokens"), given.get("temperature"), given.get("stopSequences")
    return Params(
        max_tokens=int(tokens) if isinstance(tokens, int | float) and tokens >= 1 else None,
        temperature=float(warmth) if isinstance(warmth, int | float) else None,
        stop=tuple(str(item) for item in stops) if isinstance(stops, list) else (),
    )


def _answer(model: OpenModel, answer: Completion) -> dict[str, Any]:
    provider, name = identity(model)
    content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
    content += [
        {"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in answer.tool_calls
    ]
    message: dict[str, Any] = {
        "content": content,
        "provider": provider,
        "model": name,
        "stopReason": _STOPS[answer.finish_reason],
    }
    if answer.usage is not None:
        message["usage"] = _usage(answer.usage)
    return {"message": message}


def _usage(used: Usage) -> dict[str, Any]:
    return {
        "input": used.input_tokens,
        "output": used.output_tokens,
        "cacheRead": 0,
        "cacheWrite": 0,
        "totalTokens": used.input_tokens + used.output_tokens,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
    }
