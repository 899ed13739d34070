"""Letting an estimator learn from every answer that passes by."""

from __future__ import annotations

from collections.abc import Sequence

from forestay.models.protocol import Deltas, Message, ToolSpec
from forestay.models.tokens import Estimator, ExactCounter

# Framing costs a few tokens a message; below this it would be mistaken for text.
_LEAST_INPUT = 1_000


async def observed(
    deltas: Deltas,
    counter: Estimator | ExactCounter,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
) -> Deltas:
    """`deltas` unchanged; at the end the counter hears what the provider counted, where text is all that counted."""
    texts: list[str] = []
    plain = True
    try:
        async for delta in deltas:
            texts.append(delta.text)
            plain = plain and not delta.tool_calls
            if delta.usage is not None:
                if plain:
                    counter.learn("".join(texts), delta.usage.output_tokens - delta.usage.hidden_tokens)
                said = "\n".join(message.content for message in messages)
                if not tools and len(said) >= _LEAST_INPUT:
                    counter.learn(said, delta.usage.input_tokens)
            yield delta
    finally:
        await deltas.aclose()
