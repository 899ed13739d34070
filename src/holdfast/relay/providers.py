"""Opening a provider that a caller registers for his session (C11)."""

from __future__ import annotations

from holdfast.kernel.problems import Problem
from holdfast.models import registry
from holdfast.models.protocol import Model

_OLLAMA = "http://127.0.0.1:11434/v1"
TYPES = ("openai", "anthropic", "ollama", "local")


def open_provider(
    provider_type: str, model: str | None, *, api_key: str | None = None, base_url: str | None = None
) -> Model:
    """`openai`, `anthropic` or `ollama` as the contract names them, or `local`, which needs neither key nor network."""
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
