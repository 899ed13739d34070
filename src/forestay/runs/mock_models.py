"""Mock providers: answers that a caller writes down beforehand, through the same door as a model's (OpenWOP §2).

- P1  A run names one in `configurable.mockProvider`; only test keys may (`mock_provider_forbidden`).
- P2  The provider `mock` plays a program by node, staged through the sample seam; without the seams there is none.
- P3  Every other request goes on to the host's own models.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from forestay.kernel import Problem
from forestay.runs.ports import Caller, ModelCaller, ModelDelta, ModelRequest
from forestay.runs.types import Wire

MOCK_PROVIDERS = ("stream-text", "error", "usage-only")
_FINISH: dict[str, Any] = {"max_tokens": "length", "length": "length", "safety": "content_filter"}


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


class MockModels:
    """A `ModelCaller` in front of the host's own."""

    def __init__(self, models: ModelCaller | None, *, programs: bool) -> None:
        self._models = models
        self._may_program = programs
        self._programs: dict[tuple[str, str], _Program] = {}

    def stage(self, tenant: str, node_id: str, entries: list[Staged]) -> None:
        """What the provider `mock` says to that node's calls, one entry each; when they are used up, nothing."""
        self._programs[(tenant, node_id)] = _Program(entries)

    def last_budget(self, tenant: str, node_id: str) -> int | None:
        """The `maxTokens` of the last call that a program answered."""
        found = self._programs.get((tenant, node_id))
        return None if found is None else found.budget

    async def stream(self, request: ModelRequest, caller: Caller) -> AsyncIterator[ModelDelta]:
        chosen = request.extra.get("mockProvider")
        if chosen is not None:
            async for delta in _play(chosen["id"], chosen.get("config") or {}):
                yield delta
        elif self._may_program and request.provider == "mock":
            yield self._next(request, caller)
        elif self._models is None:
            raise Problem("capability_not_provided", "This host has no models.", requiredCapability="models")
        else:
            async for delta in self._models.stream(request, caller):
                yield delta

    def _next(self, request: ModelRequest, caller: Caller) -> ModelDelta:
        program = self._programs.setdefault((caller.tenant, caller.node_id), _Program([]))
        program.budget = request.max_tokens
        staged = program.entries[program.played] if program.played < len(program.entries) else Staged()
        program.played += 1
        return ModelDelta(
            text=staged.content,
            finish_reason=_FINISH.get(staged.stop_reason, "stop"),
            provider="mock",
            model=request.model or "mock",
            input_tokens=staged.input_tokens,
            output_tokens=staged.output_tokens,
            refusal=staged.refusal_text,
        )


async def _play(id: str, config: dict[str, Any]) -> AsyncIterator[ModelDelta]:
    """The providers of `configurable.mockProvider`; `check_mock` has looked at their configuration."""
    if id == "error":
        await asyncio.sleep(config.get("failAfterMs", 0) / 1000)
        raise Problem(
            "upstream_failed", str(config.get("message", "The mock provider fails.")), mock=config.get("code")
        )
    for token in config.get("tokens", []):
        await asyncio.sleep(config.get("delayMsPerToken", 0) / 1000)
        yield ModelDelta(text=token)
    usage = config.get("usage") or {}
    yield ModelDelta(
        finish_reason=_FINISH.get(config.get("finishReason", "stop"), "stop"),
        provider="mock",
        model=str(config.get("model", id)),
        input_tokens=usage.get("inputTokens", 0),
        output_tokens=usage.get("outputTokens", len(config.get("tokens", []))),
    )


def check_mock(value: Any, at: str = "$.configurable.mockProvider") -> None:
    """Refuse a mock provider that is none of ours, or that cannot be played."""
    if not isinstance(value, dict) or value.get("id") not in MOCK_PROVIDERS:
        raise Problem("schema_mismatch", f"A mock provider is one of {', '.join(MOCK_PROVIDERS)}.", at=f"{at}.id")
    config = value.get("config", {})
    if not isinstance(config, dict) or len(value) > 2:
        raise Problem("schema_mismatch", "A mock provider has an `id` and a `config` object.", at=f"{at}.config")
    tokens = config.get("tokens", [])
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise Problem("schema_mismatch", "`tokens` is a list of texts.", at=f"{at}.config.tokens")
    usage = config.get("usage", {})
    numbers = {key: config[key] for key in ("delayMsPerToken", "failAfterMs") if key in config}
    numbers |= {f"usage.{key}": item for key, item in usage.items()} if isinstance(usage, dict) else {"usage": usage}
    for key, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= 60_000:
            raise Problem("schema_mismatch", f"`{key}` is an integer from 0 to 60000.", at=f"{at}.config.{key}")
