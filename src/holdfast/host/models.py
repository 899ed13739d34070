"""The host's models: opened once by the name that the configuration gives a class of work, closed with the host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast import models
from holdfast.kernel.clock import Clock
from holdfast.kernel.config import Models
from holdfast.kernel.problems import Problem
from holdfast.models import Message, OpenModel, Params, ToolCall, ToolSpec
from holdfast.models.assemble import whole
from holdfast.runs.ports import Caller, ModelDelta, ModelRequest


class HostModels:
    """Models by specification; the same specification is the same model."""

    def __init__(
        self,
        settings: Models,
        *,
        clock: Clock,
        folder: Path,
        own: Mapping[str, OpenModel] | None = None,
        watched: Callable[[OpenModel], OpenModel] = lambda model: model,
    ) -> None:
        """`watched` gives each model that is opened the wrapping of who counts its calls."""
        self._settings = settings
        self._clock = clock
        self._folder = folder
        self._watched = watched
        self._open: dict[str, OpenModel] = {name: watched(model) for name, model in (own or {}).items()}

    @property
    def default(self) -> OpenModel:
        return self._named(self._settings.default)

    def all(self) -> list[OpenModel]:
        """Every model that the configuration names and that can be opened, the default first."""
        found = [self.default]
        for spec in dict.fromkeys(self._settings.classes.values()):
            try:
                found.append(self._named(spec))
            except Problem:  # a key that is not there is told to whoever asks for that class
                continue
        return list(dict.fromkeys(found))

    def for_class(self, model_class: str) -> OpenModel:
        return self._named(self._settings.classes.get(model_class, self._settings.default))

    def _named(self, spec: str) -> OpenModel:
        if spec not in self._open:
            self._open[spec] = self._watched(models.open(spec, clock=self._clock, folder=self._folder))
        return self._open[spec]

    async def close(self) -> None:
        for model in self._open.values():
            await model.aclose()
        self._open.clear()


class NodeModels:
    """`runs.ModelCaller`: what nodes such as `core.ai.callPrompt` ask. They name no model of their own choice."""

    def __init__(self, models: HostModels) -> None:
        self._models = models

    async def stream(self, request: ModelRequest, caller: Caller) -> AsyncIterator[ModelDelta]:
        model = self._models.default
        messages = [_message(item) for item in request.messages]
        tools = [
            ToolSpec(item["name"], item.get("description", ""), item.get("parameters", {})) for item in request.tools
        ]
        params = Params(max_tokens=request.max_tokens, temperature=request.temperature)
        provider, _, name = model.name.partition(":")
        async for delta in model.stream(messages, tools=tools, params=params):
            used = delta.usage
            yield ModelDelta(
                text=whole(delta.text),
                finish_reason=delta.finish_reason if delta.finish_reason != "error" else None,
                provider=provider,
                model=name or provider,
                input_tokens=used.input_tokens if used else 0,
                output_tokens=used.output_tokens if used else 0,
                tool_calls=[
                    {"id": call.id, "name": call.name, "arguments": call.arguments} for call in delta.tool_calls
                ],
            )


def _message(item: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(call["id"], call["name"], call.get("arguments", {})) for call in item.get("tool_calls", ()))
    content = item.get("content")
    return Message(
        item["role"], content if isinstance(content, str) else str(content or ""), calls, item.get("tool_call_id")
    )
