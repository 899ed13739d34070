"""The answer of one model to one window, read past the seam, piece by piece, as it comes.

The first half of D4 is kept here: an answer that breaks off is asked for again only while nothing of it was shown.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from forestay.kernel import Problem
from forestay.models import Message, Model, Params, ToolCall, ToolSpec, Usage, halves, paired
from forestay.relay.continuation import Echo, Seam, is_wall
from forestay.relay.packing import Packed
from forestay.relay.window import Around

_ATTEMPTS = 2


class Built(msgspec.Struct, frozen=True):
    """A window that is ready to be sent."""

    window_id: str
    messages: list[Message]  # the relay's own; `around` are the caller's, told before and after the task
    packed: Packed
    input_tokens: int
    max_tokens: int
    saturation: float
    going_on: bool
    around: Around
    served_by: str = ""  # what the provider said of the windows before


class WindowAnswer(msgspec.Struct):
    """What one model call gave: `new` is what of its `text` was shown."""

    text: str = ""
    new: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: str | None = None
    usage: Usage | None = None
    echo: Echo = Echo()
    model: str = ""
    served_by: str = ""

    def begin(self, model: str) -> None:
        self.model, self.text, self.new, self.calls, self.finish, self.usage = model, "", "", (), None, None
        self.served_by = ""

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
    model: Model, built: Built, answer: WindowAnswer, seam: Seam, *, tools: Sequence[ToolSpec], params: Params
) -> AsyncGenerator[str, None]:
    """Yields what is new in the answer of `model`; a failure is a Problem, and `answer` then holds what was shown."""
    for left in reversed(range(_ATTEMPTS)):
        attempt = seam.fresh()
        answer.begin(model.name)
        try:
            async with aclosing(_read(model, built, tools, params, answer, attempt)) as pieces:
                async for piece in pieces:
                    answer.new += piece
                    yield piece
            if answer.finish is not None:
                return
            failure = Problem("provider_error", "The model's answer broke off before its end.", model=model.name)
            broke_off = True
        except Problem as problem:
            failure = _of_provider(problem)
            # A request that failed before its answer began was sent again by the model itself (M6).
            broke_off = bool(answer.text) and failure.row.retryable
        if answer.new:
            answer.cut(attempt)
            raise failure
        if not broke_off or not left:
            raise failure


async def _read(
    model: Model, built: Built, tools: Sequence[ToolSpec], params: Params, answer: WindowAnswer, seam: Seam
) -> AsyncGenerator[str, None]:
    """The pieces of one answer. When it breaks off, `answer.finish` is None and what the seam holds back is dropped."""
    texts: list[str] = []
    half = ""  # of a character whose other half the next delta may bring
    stream = model.stream(built.around.spliced(built.messages), tools=tools, params=params)
    try:
        async with aclosing(stream):
            async for delta in stream:
                answer.calls += delta.tool_calls
                answer.finish = delta.finish_reason or answer.finish
                answer.usage = delta.usage or answer.usage
                before = built.served_by or answer.served_by
                if before and delta.served_by not in ("", before):
                    raise _changed(model, before, delta.served_by)
                answer.served_by = answer.served_by or delta.served_by
                if delta.text:
                    text, half = halves(paired(half + delta.text))
                    texts.append(text)
                    if piece := seam.feed(text):
                        yield piece
        texts.append(half)
        if half and (piece := seam.feed(half)):
            yield piece
    finally:
        answer.text = "".join(texts)
    if answer.finish == "error":
        answer.finish = None
    if answer.finish is None and is_wall(None, answer.output_tokens(model), built.max_tokens):
        answer.finish = "length"  # it filled the window, and its server says no reason (CRP §1.4)
    if answer.finish is None:
        return
    if piece := seam.end():
        yield piece
    answer.echo = seam.echo or Echo()
    length = answer.echo.length
    if length and answer.text[length : 2 * length] == answer.text[:length]:
        answer.echo = msgspec.structs.replace(answer.echo, ambiguous=True)


def _changed(model: Model, before: str, now: str) -> Problem:
    """A router may answer with another model than before; its words do not go into this answer (C18)."""
    return Problem(
        "provider_error",
        f"{model.name} answered with {before} so far, and now with {now}.",
        fix="Resume to ask again, or name one model that the provider does not replace.",
        served_by=now,
    )


def _of_provider(problem: Problem) -> Problem:
    """A provider that asks to go more slowly has failed for us: 1002 is the session's own rate."""
    if problem.key != "rate_limited":
        return problem
    told = Problem("provider_error", problem.message, retry_after_ms=problem.retry_after_ms, **problem.details)
    told.__cause__ = problem.__cause__
    return told
