"""The providers of a session: those a caller registered, by priority, and the relay's own model last (C11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.kernel.problems import Problem
from holdfast.models.protocol import Model

if TYPE_CHECKING:
    from holdfast.relay.relay import Relay

_OLLAMA = "http://127.0.0.1:11434/v1"
TYPES = ("openai", "anthropic", "ollama", "local")


def open_provider(
    provider_type: str, model: str | None, *, api_key: str | None = None, base_url: str | None = None
) -> Model:
    """`openai`, `anthropic` or `ollama` as the contract names them, or `local`, which needs neither key nor network."""
    from holdfast.models import registry

    if provider_type not in TYPES:
        raise Problem(
            "invalid_request",
            f"{provider_type[:40]!r} is not a provider type.",
            at="$.provider_type",
            known=list(TYPES),
        )
    if provider_type == "local":
        return registry.open("local")
    if not model:
        raise Problem("invalid_request", "The provider needs a model.", at="$.model", fix="Name the model.")
    if provider_type == "ollama":
        return registry.open(f"openai:{model}@{base_url or _OLLAMA}", api_key=api_key or "ollama")
    spec = f"{provider_type}:{model}" + (f"@{base_url}" if base_url else "")
    return registry.open(spec, api_key=api_key)


class Providers:
    """Models in the order in which they are asked."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._own: list[tuple[int, int, Model]] = []

    def __bool__(self) -> bool:
        return bool(self._own) or self._relay.model is not None

    def add(self, model: Model, priority: int) -> None:
        self._own.append((priority, len(self._own), model))

    def ordered(self) -> list[Model]:
        own = [model for _, _, model in sorted(self._own, key=lambda item: item[:2])]
        found = own + ([self._relay.model] if self._relay.model is not None else [])
        if not found:
            raise Problem(
                "provider_error",
                "The session has no model.",
                fix="Open the relay with a model, or register a provider for the session.",
            )
        return found

    async def aclose(self) -> None:
        for _, _, model in self._own:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()
        self._own.clear()
