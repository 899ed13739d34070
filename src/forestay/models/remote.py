"""A model behind a network: sends a request over one wire, retries it, times it out, and counts its tokens.

A provider is a module with a `Wire` and a `PROVIDER`, named in the registry's table.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from forestay.kernel import Clock, Problem, Randomness, SystemRandomness
from forestay.models.faults import Endpoint, silent, translated
from forestay.models.limits import ModelLimits
from forestay.models.protocol import DEFAULT_PARAMS, Deltas, Message, Params, ToolSpec
from forestay.models.tokens import Estimator, ExactCounter

_SILENCE = 120.0
# Framing costs a few tokens per message; in a shorter input it would distort the count.
_LEAST_INPUT = 1_000


class Retries(msgspec.Struct, frozen=True):
    """How often to try and how long to wait. A provider's hint of at most `longest_wait` seconds is followed."""

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 60.0
    jitter: float = 0.5


DEFAULT_RETRIES = Retries()


class Wire(Protocol):
    """One provider's protocol, spoken with its official package `sdk`."""

    @property
    def name(self) -> str: ...

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def sdk(self) -> Any: ...

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params) -> dict[str, Any]: ...

    def deltas(self, request: dict[str, Any]) -> Deltas: ...

    def authorise(self, key: str) -> None:
        """Send `key` from now on."""

    async def aclose(self) -> None: ...


class Provider(msgspec.Struct, frozen=True):
    """A kind of remote model: its name for people, the variable of its key and its package.

    `client` opens the package's client. `unsent` names the headers that the client would send and must not; its
    arguments say whether the server has a `base_url`, and whether there is a key. `wire` speaks the protocol.
    """

    title: str
    variable: str
    package: str
    client: Callable[..., Any]
    unsent: Callable[[bool, bool], Sequence[str]]
    wire: Callable[[str, str, Any, Endpoint, int | None], Wire]


class Remote:
    """A `Model` that speaks a `Wire`."""

    def __init__(
        self,
        wire: Wire,
        *,
        limits: ModelLimits,
        counter: Estimator | ExactCounter,
        clock: Clock,
        retries: Retries = DEFAULT_RETRIES,
        randomness: Randomness | None = None,
        key: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """`key` fetches the key for each request, when reading it takes time."""
        self.name = wire.name
        self.context_window = limits.context_window
        self.max_output_tokens = limits.max_output_tokens
        self._wire = wire
        self._counter = counter
        self._clock = clock
        self._retries = retries
        self._randomness = randomness or SystemRandomness()
        self._key = key

    def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        request = self._wire.request(messages, tools, params)
        asked = tuple(message.content for message in messages)
        silence = params.timeout or _SILENCE
        deltas = resend(
            lambda: paced(self._attempt(request, asked), silence, self._wire.endpoint), self._retries, self._randomness
        )
        return observed(deltas, self._counter, messages, tools)

    def count_tokens(self, text: str) -> int:
        return self._counter.count(text)

    async def count_request(self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = ()) -> int:
        """Return the provider's count of a request, over the network; raise a Problem when its protocol has none."""
        count = getattr(self._wire, "count", None)
        if count is None:
            raise Problem(
                "capability_not_provided",
                f"{self._wire.endpoint.provider} does not count tokens for others.",
                fix="Use `count_tokens`.",
            )
        await self._authorised()
        with translated(self._wire.sdk, self._wire.endpoint, self._clock):
            tokens: int = await count(messages, tools)
        return tokens

    async def aclose(self) -> None:
        await self._wire.aclose()

    async def _authorised(self) -> None:
        if self._key is not None:
            self._wire.authorise(await self._key())

    async def _attempt(self, request: dict[str, Any], asked: tuple[str, ...]) -> Deltas:
        await self._authorised()
        endpoint = msgspec.structs.replace(self._wire.endpoint, asked=asked)
        with translated(self._wire.sdk, endpoint, self._clock):
            deltas = self._wire.deltas(request)
            try:
                async for delta in deltas:
                    yield delta
            finally:
                await deltas.aclose()


async def resend(attempt: Callable[[], Deltas], retries: Retries, randomness: Randomness) -> Deltas:
    """Yield the deltas of `attempt()`; try again while it fails before its first delta."""
    for number in itertools.count(1):
        stream = attempt()
        try:
            first = await anext(stream)
            break
        except Problem as problem:
            wait = _wait(problem, number, retries, randomness)
            if wait is None:
                raise
        await asyncio.sleep(wait)
    try:
        yield first
        async for delta in stream:
            yield delta
    finally:
        await stream.aclose()


async def paced(stream: Deltas, silence: float, endpoint: Endpoint) -> Deltas:
    """Yield `stream`; raise `provider_timeout` after `silence` seconds without a delta."""
    shown = False
    try:
        while True:
            try:
                async with asyncio.timeout(silence):
                    delta = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise silent(endpoint, silence, began=shown) from error
            shown = True
            yield delta
    finally:
        await stream.aclose()


def _wait(problem: Problem, attempt: int, retries: Retries, randomness: Randomness) -> float | None:
    """Return the seconds until the next attempt: the provider's hint, else a growing wait; None to give up."""
    advice = problem.details.get("should_retry")
    if attempt >= retries.attempts or not (problem.row.retryable if advice is None else advice):
        return None
    if problem.retry_after_ms is not None:
        hint = problem.retry_after_ms / 1000
        return hint if hint <= retries.longest_wait else None
    return min(retries.longest_wait, retries.first_wait * 2.0 ** (attempt - 1) + retries.jitter * randomness.uniform())


async def observed(
    deltas: Deltas,
    counter: Estimator | ExactCounter,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
) -> Deltas:
    """Yield `deltas` unchanged, and teach the counter the provider's counts when only text was counted."""
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
