"""One window: how its tokens are shared out, and the messages that go into it (CRP §1.3).

E = C - S - T - G: the context window less system prompt, task and generation reserve is the envelope's budget.
The system prompt and the task go in as they are (validated, otherwise untouched).
"""

from __future__ import annotations

import msgspec

from holdfast.kernel.problems import Problem
from holdfast.models.protocol import Message, Model
from holdfast.relay.types import SessionConfig

_DEFAULT_RESERVE = 16_384
_TAIL = 2000


class Plan(msgspec.Struct, frozen=True):
    """The shares of one window, in tokens."""

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


def plan(model: Model, config: SessionConfig, system_prompt: str, task_input: str, max_output: int | None) -> Plan:
    window = config.context_window or model.context_window
    return Plan(
        window,
        model.count_tokens(system_prompt),
        model.count_tokens(task_input),
        reserve(model, config, max_output, window),
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
    user = f"{envelope}\n\n{task_input}" if envelope else task_input
    messages = [Message("system", system_prompt)] if system_prompt else []
    return [*messages, Message("user", user)]


def continuation_messages(first: list[Message], output: str, prompt: str) -> list[Message]:
    """The first window's messages unchanged, so that a provider can reuse its cache, then where the text stands."""
    return [*first, Message("assistant", output[-_TAIL:]), Message("user", prompt)]
