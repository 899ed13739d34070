"""Mock providers: answers that a caller prepares, behind the same protocol as a model (OpenWOP §2).

- P1  A run names one in `configurable.mockProvider`; only test keys may do so (`mock_provider_forbidden`).
- P2  The provider `mock`, or a model `mock:…`, plays the node's program, staged through the sample seam; without the
      seams there is none.
- P3  Every other request goes to the host's own models.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from forestay.kernel import Problem
from forestay.models import (
    DEFAULT_PARAMS,
    Delta,
    Deltas,
    FinishReason,
    Message,
    Model,
    Params,
    ToolCall,
    ToolSpec,
    Usage,
)
from forestay.runs.ports import Caller, ModelSource
from forestay.runs.types import Wire

MOCK_PROVIDERS = ("stream-text", "tool-calls", "error", "usage-only")
_FINISH: dict[str, FinishReason] = {"max_tokens": "length", "length": "length", "safety": "content_filter"}


class Staged(Wire, frozen=True):
    """One answer of a program; `refusalText` makes it a refusal."""

    content: str = ""
    stop_reason: str = "end_turn"
    refusal_text: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0


class _Program(msgspec.Struct):
    entries: list[Staged]
    played: int = 0
    budget: int | None = None

    async def play(self, params: Params) -> Deltas:
        self.budget = params.max_tokens
        staged = self.entries[self.played] if self.played < len(self.entries) else Staged()
        self.played += 1
        yield Delta(
            staged.content,
            finish_reason=_FINISH.get(staged.stop_reason, "stop"),
            usage=Usage(staged.input_tokens, staged.output_tokens),
            refusal=staged.refusal_text or "",
        )


class MockModels:
    """Mock providers in front of the host's own models."""

    def __init__(self, models: ModelSource | None, *, programs: bool) -> None:
        self._models = models
        self._may_program = programs
        self._programs: dict[tuple[str, str], _Program] = {}

    def stage(self, tenant: str, node_id: str, entries: list[Staged]) -> None:
        """Stage the answers of the provider `mock` to a node's calls, one for each; later calls get an empty answer."""
        self._programs[(tenant, node_id)] = _Program(entries)

    def last_budget(self, tenant: str, node_id: str) -> int | None:
        """Return the `maxTokens` of the last call that a program answered."""
        found = self._programs.get((tenant, node_id))
        return None if found is None else found.budget

    def chosen(
        self, provider: str | None, name: str | None, caller: Caller, mock: dict[str, Any] | None = None
    ) -> Model:
        """Return the model for one call of a node; `mock` is the run's mock provider (P1)."""
        if mock is not None:
            config = mock.get("config") or {}
            return _Mock(
                str(config.get("model", mock["id"])), lambda messages, params: _played(mock["id"], config, messages)
            )
        if self._may_program and (provider == "mock" or (name or "").startswith("mock:")):
            program = self._programs.setdefault((caller.tenant, caller.node_id), _Program([]))
            return _Mock((name or "mock").removeprefix("mock:"), lambda messages, params: program.play(params))
        if self._models is None:
            raise Problem("capability_not_provided", "This host has no models.", requiredCapability="models")
        return self._models.chosen(provider, name)


class _Call(msgspec.Struct, frozen=True):
    """A tool call in the first answer of the provider `tool-calls`; its next answer is `tokens`."""

    name: str
    arguments: dict[str, Any] = {}


class _Mock:
    """A `Model` with prepared answers."""

    context_window = 1 << 20
    max_output_tokens = None

    def __init__(self, name: str, play: Callable[[Sequence[Message], Params], Deltas]) -> None:
        self.name = f"mock:{name}"
        self._play = play

    def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        return self._play(messages, params)

    def count_tokens(self, text: str) -> int:
        return len(text.split())


async def _played(id: str, config: dict[str, Any], messages: Sequence[Message]) -> Deltas:
    """Play a provider of `configurable.mockProvider`; `check_mock` has checked its configuration."""
    if id == "error":
        await asyncio.sleep(config.get("failAfterMs", 0) / 1000)
        raise Problem(
            "upstream_failed", str(config.get("message", "The mock provider fails.")), mock=config.get("code")
        )
    if id == "tool-calls" and not any(message.role == "tool" for message in messages):
        calls = [msgspec.convert(item, _Call) for item in config.get("toolCalls", [])]
        made = tuple(ToolCall(f"call_{number}", item.name, item.arguments) for number, item in enumerate(calls))
        yield Delta(tool_calls=made, finish_reason="tool_calls", usage=Usage(0, 0))
        return
    for token in config.get("tokens", []):
        await asyncio.sleep(config.get("delayMsPerToken", 0) / 1000)
        yield Delta(token)
    usage = config.get("usage") or {}
    yield Delta(
        finish_reason=_FINISH.get(config.get("finishReason", "stop"), "stop"),
        usage=Usage(usage.get("inputTokens", 0), usage.get("outputTokens", len(config.get("tokens", [])))),
    )


def check_mock(value: Any, at: str = "$.configurable.mockProvider") -> None:
    """Refuse an unknown mock provider, or one that cannot be played."""
    if not isinstance(value, dict) or value.get("id") not in MOCK_PROVIDERS:
        raise Problem("schema_mismatch", f"A mock provider must be one of {', '.join(MOCK_PROVIDERS)}.", at=f"{at}.id")
    config = value.get("config", {})
    if not isinstance(config, dict) or len(value) > 2:
        raise Problem("schema_mismatch", "A mock provider must have an `id` and a `config` object.", at=f"{at}.config")
    tokens = config.get("tokens", [])
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise Problem("schema_mismatch", "`tokens` must be a list of texts.", at=f"{at}.config.tokens")
    try:
        msgspec.convert(config.get("toolCalls", []), list[_Call])
    except msgspec.ValidationError as error:
        message = "`toolCalls` must be a list of objects with a `name` and `arguments`."
        raise Problem("schema_mismatch", message, at=f"{at}.config.toolCalls") from error
    usage = config.get("usage", {})
    numbers = {key: config[key] for key in ("delayMsPerToken", "failAfterMs") if key in config}
    numbers |= {f"usage.{key}": item for key, item in usage.items()} if isinstance(usage, dict) else {"usage": usage}
    for key, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= 60_000:
            raise Problem("schema_mismatch", f"`{key}` must be an integer from 0 to 60000.", at=f"{at}.config.{key}")
