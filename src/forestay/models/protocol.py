"""The protocol of a language model: messages in, a stream of deltas out, tokens counted.

This module has only data and the one fold over it. Invariants that every provider keeps:

M1  The texts of the deltas, joined, are the provider's text, byte for byte.
M2  A tool call arrives whole, in one delta, with its arguments parsed. A call that the token limit cut is dropped.
M3  Exactly one delta has a finish reason, and it is the last. A stream that ends without one was interrupted.
M4  Usage is what the provider reported, or None; never an estimate.
M5  Closing the iterator, or cancelling the task that reads it, closes the request behind it.
M6  A failure is a Problem (`provider_error`, `provider_timeout`, `rate_limited` …). A request is sent again only as
    long as nothing of its answer was passed on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from forestay.kernel import Problem

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error"]


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call that the model wants; `malformed` has the raw text of arguments that are not a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any]
    malformed: str | None = None


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation; `tool_call_id` names the call that a `tool` message answers.

    `task` marks an agent's task among the other messages with the role `user`. Models do not get the mark.
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    task: bool = False


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model sees it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Params(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to sample and when to stop; None leaves the provider's default. A parameter that a wire lacks is not sent.

    `timeout` is the longest silence in seconds. It limits the pause between two pieces, not the whole answer.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    timeout: float | None = None


DEFAULT_PARAMS = Params()


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider counted them. `hidden_tokens` are output tokens that it did not show (reasoning);
    `cost_usd` is its price for all of them, if it tells."""

    input_tokens: int
    output_tokens: int
    hidden_tokens: int = 0
    cost_usd: float | None = None


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The next piece of an answer. `served_by` is the model that wrote it and `refusal` its text in place of an answer,
    if the provider tells."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    served_by: str = ""
    refusal: str = ""


Deltas = AsyncGenerator[Delta, None]
"""An answer as the model writes it; closing it closes the request behind it (M5)."""


class Completion(msgspec.Struct, frozen=True):
    """A whole answer; `asked` is the usage of each call when it took several."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    usage: Usage | None
    served_by: str = ""
    refusal: str = ""
    asked: tuple[Usage, ...] = ()


class Model(Protocol):
    """A language model, wherever it runs."""

    @property
    def name(self) -> str: ...

    @property
    def context_window(self) -> int: ...

    @property
    def max_output_tokens(self) -> int | None: ...

    def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        """Answer `messages`, piece by piece (M1 to M6)."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of `text`: exactly with a tokenizer, else by the model's best estimate."""


@runtime_checkable
class Reserving(Protocol):
    """A model that records the highest cost of a request before it sends it."""

    def reserving(self, messages: Sequence[Message], params: Params) -> AbstractAsyncContextManager[None]:
        """Reserve budget for the next request, which has these messages. The reservation is on disk when the block
        ends, together with what the block writes."""


async def fold(stream: Deltas, heard: Callable[[str], Awaitable[None]] | None = None) -> Completion:
    """Fold `stream` into one Completion; a stream without a finish reason is a Problem (M3). `heard` gets each text as
    it comes."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    last = Delta()
    served_by = refusal = ""
    async with aclosing(stream):
        async for delta in stream:
            texts.append(delta.text)
            calls.extend(delta.tool_calls)
            last = delta
            served_by = served_by or delta.served_by
            refusal += delta.refusal
            if heard is not None and delta.text:
                await heard(delta.text)
    if last.finish_reason is None:
        raise Problem(
            "provider_error",
            "The model's answer broke off before its end.",
            received_characters=sum(map(len, texts)),
            fix="Ask again, or use another provider.",
        )
    return Completion("".join(texts), tuple(calls), last.finish_reason, last.usage, served_by, refusal)
