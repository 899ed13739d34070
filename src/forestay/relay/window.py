"""One window: how its tokens are shared out, and the messages that go into it (CRP §1.3).

E = C - S - T - G: the context window less system prompt, task and generation reserve is the envelope's budget.
The system prompt and the task go in as they are (validated, otherwise untouched).

W1  What is sent and what may be written never exceed the window together, as the model counts now (C19). The tools, the
    tool calls and what a provider adds to each message are counted too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from forestay.kernel import Problem
from forestay.models import MESSAGE_TOKENS, Message, Model, ToolSpec, message_tokens, tool_tokens
from forestay.relay.continuation import ANCHOR, LEAST_ANCHOR
from forestay.relay.progress import Structure, continuation_prompt
from forestay.relay.types import SessionConfig

_DEFAULT_RESERVE = 16_384
# Characters of the output that a continuation shows as the model's own words and in its prompt (C13).
_SHOWN_AGAIN = ((2000, ANCHOR), (1000, ANCHOR), (0, ANCHOR), (0, LEAST_ANCHOR))
_JOINT = "\n\n"


class Plan(msgspec.Struct, frozen=True):
    """The shares of one window, in tokens; the system's share holds the tools."""

    context_window: int
    system: int
    task: int
    reserve: int

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
) -> Plan:
    window, count = config.context_window or model.context_window, model.count_tokens
    return Plan(
        window,
        (count(system_prompt) + MESSAGE_TOKENS if system_prompt else 0) + tool_tokens(count, tools),
        count(task_input) + count(_JOINT) + MESSAGE_TOKENS,
        reserve(model, config, max_output, window),
    )


def request_tokens(model: Model, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
    """W1: what a request costs, all of it."""
    count = model.count_tokens
    return sum(message_tokens(count, message) for message in messages) + tool_tokens(count, tools)


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
