"""One window asked of the providers: its answer is read past the seam, piece by piece, as it comes.

D4 of the window engine is kept here: a provider is asked again, or the next one is, only while nothing was shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence

import msgspec

from holdfast.kernel.problems import Problem
from holdfast.models.protocol import Message, Model, Params, ToolCall, ToolSpec, Usage
from holdfast.relay.continuation import Echo, Seam, is_wall
from holdfast.relay.pack import Packed

_CUT_RETRIES = 1


class Built(msgspec.Struct, frozen=True):
    """A window that is ready to be sent."""

    window_id: str
    messages: list[Message]
    packed: Packed
    input_tokens: int
    max_tokens: int
    saturation: float
    going_on: bool


class Turn(msgspec.Struct):
    """What one model call gave: `new` is what of its `text` was shown."""

    text: str = ""
    new: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: str | None = None
    usage: Usage | None = None
    echo: Echo = Echo()
    model: str = ""

    def begin(self, model: str) -> None:
        self.model, self.text, self.new, self.calls, self.finish, self.usage = model, "", "", (), None, None

    def cut(self, seam: Seam) -> None:
        """It broke off after something was shown: what was shown is what it gave (C15)."""
        self.finish = "cut"
        self.echo = seam.echo or Echo()
        self.text = self.text[: self.echo.length] + self.new

    def output_tokens(self, model: Model) -> int:
        """As the provider counted them, else as `model` does."""
        if self.usage is not None:
            return max(0, self.usage.output_tokens)
        return model.count_tokens(self.text) if self.text else 0


async def ask(
    models: Sequence[Model],
    built: Built,
    turn: Turn,
    seam: Seam,
    *,
    tools: Sequence[ToolSpec],
    timeout: float | None,
    counting: Model,
) -> AsyncIterator[str]:
    """Ask `models`, best first, until one answers; yields what is new (D4). `counting` tells whether a wall was hit."""
    waiting = deque((model, _CUT_RETRIES) for model in models)
    params = Params(max_tokens=built.max_tokens, timeout=timeout)
    while True:
        model, retries = waiting.popleft()
        attempt, failure = seam.fresh(), None
        turn.begin(model.name)
        try:
            async for piece in _read(model, built.messages, params, tools, turn, attempt):
                turn.new += piece
                yield piece
        except Problem as problem:
            failure = _of_provider(problem)
        if failure is None:
            if _ended(turn, built, counting):
                return
            failure = Problem("provider_error", "The model's answer broke off before its end.", model=model.name)
            if retries:
                waiting.appendleft((model, retries - 1))
        if turn.new:
            turn.cut(attempt)
            raise failure
        if not waiting:
            raise failure


def _ended(turn: Turn, built: Built, counting: Model) -> bool:
    """Whether the answer is whole; one without a finish reason is when it filled the window (CRP §1.4)."""
    if turn.finish is None and is_wall(None, turn.output_tokens(counting), built.max_tokens):
        turn.finish = "length"
    return turn.finish is not None


async def _read(
    model: Model, messages: Sequence[Message], params: Params, tools: Sequence[ToolSpec], turn: Turn, seam: Seam
) -> AsyncIterator[str]:
    texts: list[str] = []
    stream = model.stream(messages, tools=tools, params=params)
    try:
        async for delta in stream:
            turn.calls += delta.tool_calls
            turn.finish = delta.finish_reason or turn.finish
            turn.usage = delta.usage or turn.usage
            if delta.text:
                texts.append(delta.text)
                if piece := seam.feed(delta.text):
                    yield piece
    finally:
        turn.text = "".join(texts)
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    if turn.finish == "error":
        turn.finish = None
    if piece := seam.end():
        yield piece
    turn.echo = seam.echo or Echo()
    length = turn.echo.length
    if length and turn.text[length : 2 * length] == turn.text[:length]:
        turn.echo = msgspec.structs.replace(turn.echo, ambiguous=True)


def _of_provider(problem: Problem) -> Problem:
    """A provider that asks to go more slowly has failed for us: 1002 is the session's own rate."""
    if problem.key != "rate_limited":
        return problem
    told = Problem("provider_error", problem.message, retry_after_ms=problem.retry_after_ms, **problem.details)
    told.__cause__ = problem.__cause__
    return told
