"""The host's models: opened once by the name that the configuration gives a class of work, closed with the host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from forestay import models
from forestay.governance import Described, ModelCall
from forestay.kernel import Clock, Models, Problem
from forestay.models import FinishReason, Message, Model, OpenModel, Params, ToolCall, ToolSpec, message_tokens, whole
from forestay.runs import Caller, ModelDelta, ModelRequest

_MOCK_TOKENS = 4096  # the longest answer of a mock provider


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
        for spec in dict.fromkeys([*self._settings.classes.values(), *self._settings.entries]):
            try:
                found.append(self._named(spec))
            except Problem:  # a key that is not there is told to whoever asks for that model
                continue
        return list(dict.fromkeys(found))

    def for_class(self, model_class: str) -> OpenModel:
        return self._named(self._settings.classes.get(model_class, self._settings.default))

    def chosen(self, provider: str | None, name: str | None) -> OpenModel:
        """The model that a caller names by its provider, its name or both, as they are shown; the default for none.

        A model that is not configured is a Problem: no other one answers in its place.
        """
        if not provider and not name:
            return self.default
        if not provider and name in (self._settings.default, *self._settings.classes.values(), *self._settings.entries):
            return self._named(str(name))
        offered = self.all()
        for model in offered:
            shown = identity(model)
            if (not provider or provider == shown[0]) and (not name or name in (shown[1], model.name)):
                return model
        named = "/".join(filter(None, (provider, name)))
        raise Problem(
            "model_unknown",
            f"There is no model {named[:120]} here.",
            known=[model.name for model in offered],
            fix="Use one of `known`, or configure it in [models].",
        )

    def _named(self, spec: str) -> OpenModel:
        if spec not in self._open:
            opened = models.open(spec, clock=self._clock, folder=self._folder, entries=self._settings.entries)
            self._open[spec] = self._watched(opened)
        return self._open[spec]

    async def close(self) -> None:
        for model in self._open.values():
            await model.aclose()
        self._open.clear()


def identity(model: Model) -> tuple[str, str]:
    """The provider (or the entry of the settings) and the name of a model, as others are shown them."""
    provider, _, name = model.name.partition(":")
    return provider, name or provider


class NodeModels:
    """`runs.ModelCaller`: what nodes such as `core.ai.callPrompt` ask: the model that they name, or the default."""

    def __init__(self, models: HostModels) -> None:
        self._models = models

    def described(self, request: ModelRequest) -> Described:
        """The model that a request means, a mock one too, and the most that the call may use."""
        mock = request.extra.get("mockProvider")
        if mock is not None or request.provider == "mock":
            name = (mock.get("config") or {}).get("model", mock["id"]) if mock is not None else request.model or "mock"
            return Described(f"mock:{name}", lambda: ModelCall(0, request.max_tokens or _MOCK_TOKENS))
        model = self._models.chosen(request.provider, request.model)

        def call() -> ModelCall:
            asked = sum(message_tokens(model.count_tokens, _message(item)) for item in request.messages)
            return ModelCall(asked, request.max_tokens or model.max_output_tokens or model.context_window)

        return Described(model.name, call)

    async def stream(self, request: ModelRequest, caller: Caller) -> AsyncIterator[ModelDelta]:
        model = self._models.chosen(request.provider, request.model)
        messages = [_message(item) for item in request.messages]
        tools = [
            ToolSpec(item["name"], item.get("description", ""), item.get("parameters", {})) for item in request.tools
        ]
        params = Params(max_tokens=request.max_tokens, temperature=request.temperature)
        provider, name = identity(model)
        finish: FinishReason | None = None
        async for delta in model.stream(messages, tools=tools, params=params):
            used = delta.usage
            finish = delta.finish_reason or finish
            if finish == "error":
                break
            yield ModelDelta(
                text=whole(delta.text),
                finish_reason=finish,
                provider=provider,
                model=name,
                input_tokens=used.input_tokens if used else 0,
                output_tokens=used.output_tokens if used else 0,
                tool_calls=[
                    {"id": call.id, "name": call.name, "arguments": call.arguments} for call in delta.tool_calls
                ],
            )
        if finish is None or finish == "error":
            raise Problem("provider_error", "The model's answer broke off before its end.", model=model.name)


def _message(item: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(call["id"], call["name"], call.get("arguments", {})) for call in item.get("tool_calls", ()))
    content = item.get("content")
    return Message(
        item["role"], content if isinstance(content, str) else str(content or ""), calls, item.get("tool_call_id")
    )
