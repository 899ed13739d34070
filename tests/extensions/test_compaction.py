"""What the host's model is shown for a summary of a conversation."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.extensions.compaction import summary, transcribed
from forestay.kernel import Problem


class _Says:
    def __init__(self, text: str) -> None:
        self.text, self.asked = text, ""

    async def models(self) -> list[Any]:
        return []

    async def stream(self, request: Any) -> Any:
        self.asked = request["context"]["messages"][0]["content"]
        yield {"delta": self.text}
        yield {"message": {"content": [{"type": "text", "text": self.text}]}}


async def test_a_summary_is_of_what_fits_the_model() -> None:
    said = [
        {"role": "user", "content": "Begin. " + "x" * 9_000},
        {"role": "assistant", "content": [{"type": "toolCall", "name": "ls", "arguments": {"path": "."}}]},
        {"role": "toolResult", "toolName": "ls", "content": [{"type": "text", "text": "End."}]},
        "nonsense",
    ]
    assert transcribed(said[1:]) == "[assistant]\ncalls ls {'path': '.'}\n\n[ls]\nEnd."
    model = _Says("Short.")
    assert await summary(model, {"contextWindow": 1_000}, said, "Keep the numbers.") == "Short."
    assert "Begin." in model.asked and "End." in model.asked and "are left out" in model.asked
    assert len(model.asked) < 3_000 and "Keep the numbers." in model.asked
    with pytest.raises(Problem, match="no summary"):
        await summary(_Says(" "), None, said)
