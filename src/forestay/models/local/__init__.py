"""`local`: a small deterministic extractive model, so that a newcomer's first run works without a network.

It does not reason. It quotes the sentence of the context that shares the most important words with the question and
names its source. Or it calls the tool whose description fits and repeats the tool's result. Its answer says so.

L1  The same messages give the same answer.
L2  Text between quotation marks is a literal quote from the context.
L3  It calls a tool at most once for a question, so every conversation ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from forestay.models.local.tokens import tokens_of
from forestay.models.protocol import DEFAULT_PARAMS, Deltas, Message, Params, ToolSpec


class Local:
    """The extractive model. One token is one word or mark with the white space before it."""

    name = "local"
    context_window = 32_768
    max_output_tokens = None

    def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        from forestay.models.local.answer import answer  # loads its word lists only when it is used

        return answer(messages, tools, params)

    def count_tokens(self, text: str) -> int:
        return len(tokens_of(text))

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""
