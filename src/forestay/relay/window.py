"""One window: how its tokens are divided, the messages that go into it (CRP §1.3), and the answer that comes back.

E = C - S - T - G: the context window less system prompt, task and generation reserve is the envelope's budget.
The system prompt and the task go in as they are (validated, otherwise untouched).

W1  What is sent and what may be written never exceed the window together, as the model counts now (C19). The tools, the
    tool calls and what a provider adds to each message and to the request are counted too.
W2  The answer is read past the seam, piece by piece, as it comes. One that breaks off is asked for again only while
    nothing of it was shown (the first half of D4).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from forestay.kernel import Problem
from forestay.models import (
    MESSAGE_TOKENS,
    OPENING_TOKENS,
    Message,
    Model,
    Params,
    ToolCall,
    ToolSpec,
    Usage,
    halves,
    message_tokens,
    paired,
    tool_tokens,
)
from forestay.relay.continuation import ANCHOR, LEAST_ANCHOR, Echo, Seam, Structure, continuation_prompt, is_wall
from forestay.relay.envelope import Packed
from forestay.relay.types import SessionConfig
from forestay.relay.warm import Warm

_DEFAULT_RESERVE = 16_384
_LEAST_WINDOW = 256  # tokens that a conversation leaves for the task and its answer
# Characters of the output that a continuation shows as the model's own words and in its prompt (C13).
_SHOWN_AGAIN = ((2000, ANCHOR), (1000, ANCHOR), (0, ANCHOR), (0, LEAST_ANCHOR))
_JOINT = "\n\n"


class Around(msgspec.Struct, frozen=True):
    """The conversation that a task stands in: what was said before it, and since."""

    before: tuple[Message, ...] = ()
    since: tuple[Message, ...] = ()

    def spliced(self, messages: Sequence[Message]) -> list[Message]:
        """The relay's messages with the conversation around the task, which is the first of the user's."""
        if not self.before and not self.since:
            return list(messages)
        at = next(index for index, message in enumerate(messages) if message.role == "user")
        return [*messages[:at], *self.before, messages[at], *self.since, *messages[at + 1 :]]


ALONE = Around()


class Plan(msgspec.Struct, frozen=True):
    """The shares of one window, in tokens, without the conversation around the task; `system` holds the `tools`."""

    context_window: int
    system: int
    task: int
    reserve: int
    tools: int = 0

    @property
    def envelope(self) -> int:
        return max(0, self.context_window - self.system - self.task - self.reserve)

    @property
    def fits(self) -> bool:
        return self.system + self.task <= self.context_window - self.reserve


def plan(
    model: Model,
    config: SessionConfig,
    system_prompt: str,
    task_input: str,
    max_output: int | None,
    tools: Sequence[ToolSpec] = (),
    around: Around = ALONE,
) -> Plan:
    count = model.count_tokens
    whole = config.context_window or model.context_window
    window = whole - request_tokens(model, (*around.before, *around.since))
    if window < _LEAST_WINDOW and (around.before or around.since):
        raise Problem(
            "window_exceeded",
            f"The conversation leaves {window} tokens of the window of {model.name}, and {_LEAST_WINDOW} are needed.",
            limit=whole,
            fix="Begin a new conversation, let tools answer with less, or use a model with a larger window.",
        )
    told = tool_tokens(count, tools)
    return Plan(
        window - OPENING_TOKENS,
        (count(system_prompt) + MESSAGE_TOKENS if system_prompt else 0) + told,
        count(task_input) + count(_JOINT) + MESSAGE_TOKENS,
        reserve(model, config, max_output, window),
        told,
    )


def request_tokens(model: Model, messages: Sequence[Message]) -> int:
    """What messages cost; the tools are counted in the plan (W1)."""
    return sum(message_tokens(model.count_tokens, message) for message in messages)


def exceeded(needed: int, window: int) -> Problem:
    return Problem(
        "window_exceeded", f"{needed} tokens must be sent, and the window has {window}.", needed=needed, limit=window
    )


def reserve(model: Model, config: SessionConfig, max_output: int | None, window: int) -> int:
    """G: what the user asked for, else what the provider can, else a quarter of the window."""
    limit = model.max_output_tokens
    asked = max_output or config.max_output_tokens
    if asked is not None and limit is not None and asked > limit:
        raise Problem(
            "invalid_request",
            f"max_output_tokens is {asked}; this model writes at most {limit}.",
            at="$.max_output_tokens",
            limit=limit,
            fix="Ask for less: longer output comes in several windows by itself.",
        )
    chosen = asked or limit or min(window // 4, _DEFAULT_RESERVE)
    return max(1, min(chosen, window // 2) if asked is None else chosen)


def within_caps(warm: Warm, fixed: int, reserve: int, room: int) -> tuple[int, int]:
    """What a session's caps leave for the next window (C10, C14): `max_tokens` and the envelope's room, or 1001.
    `fixed` tokens are sent in any case."""
    windows, tokens_in, tokens_out = warm.left()
    config = warm.config
    if windows == 0:
        raise _exhausted("max_windows_per_session", warm.windows, config.max_windows_per_session or config.max_windows)
    if tokens_in is not None:
        if fixed > tokens_in:
            raise _exhausted("max_total_input_tokens", warm.input_tokens, config.max_total_input_tokens, needed=fixed)
        room = min(room, tokens_in - fixed)
    if tokens_out is not None:
        if tokens_out < 1:
            raise _exhausted("max_total_output_tokens", warm.output_tokens, config.max_total_output_tokens)
        reserve = min(reserve, tokens_out)
    return reserve, room


def _exhausted(cap: str, usage: int, limit: int | None, **more: Any) -> Problem:
    said = f"The session's {cap} of {limit} is used up."
    return Problem("budget_exhausted", said, cap=cap, dimension=cap, usage=usage, limit=limit, **more)


def first_messages(system_prompt: str, envelope: str, task_input: str) -> list[Message]:
    user = f"{envelope}{_JOINT}{task_input}" if envelope else task_input
    messages = [Message("system", system_prompt)] if system_prompt else []
    return [*messages, Message("user", user)]


def continuations(turns: Sequence[Message], output: str, structure: Structure) -> Iterator[list[Message]]:
    """What asks for more behind the first messages: with as much of the output as is useful, then with less and less.

    The first messages stay the same, so that a provider can reuse its cache.
    """
    for tail, anchor in _SHOWN_AGAIN:
        shown = [Message("assistant", output[-tail:])] if tail else []
        yield [*turns, *shown, Message("user", continuation_prompt(output, structure, anchor))]


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
