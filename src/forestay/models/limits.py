"""The documented limits of well-known models: context window and longest answer, in tokens.

The first prefix that fits decides. Any other model gets a careful default. `models.open(..., context_window=,
max_output_tokens=)` overrides both.
"""

from __future__ import annotations

import msgspec


class ModelLimits(msgspec.Struct, frozen=True):
    context_window: int
    max_output_tokens: int | None


_KNOWN: tuple[tuple[str, ModelLimits], ...] = (
    ("gpt-5", ModelLimits(400_000, 128_000)),
    ("gpt-4.1", ModelLimits(1_047_576, 32_768)),
    ("gpt-4o", ModelLimits(128_000, 16_384)),
    ("gpt-4-turbo", ModelLimits(128_000, 4_096)),
    ("gpt-3.5-turbo", ModelLimits(16_385, 4_096)),
    ("o1", ModelLimits(200_000, 100_000)),
    ("o3", ModelLimits(200_000, 100_000)),
    ("o4-mini", ModelLimits(200_000, 100_000)),
    ("claude-3-5", ModelLimits(200_000, 8_192)),
    ("claude-3-7", ModelLimits(200_000, 64_000)),
    ("claude-3-", ModelLimits(200_000, 4_096)),
    ("claude-opus-4", ModelLimits(200_000, 32_000)),
    ("claude-", ModelLimits(200_000, 64_000)),
)
CAREFUL = ModelLimits(8_192, None)


def limits_of(model: str) -> ModelLimits:
    return next((limits for prefix, limits in _KNOWN if model.startswith(prefix)), CAREFUL)
