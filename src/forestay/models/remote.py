"""A model behind a network: one wire, sent again while nothing was shown, given up when silent, counted as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from forestay.kernel import Clock, Problem, Randomness, SystemRandomness
from forestay.models.faults import Endpoint, translated
from forestay.models.limits import ModelLimits
from forestay.models.observed import observed
from forestay.models.protocol import DEFAULT_PARAMS, Deltas, Message, Params, ToolSpec
from forestay.models.resend import DEFAULT_RETRIES, Retries, paced, resend
from forestay.models.tokens import Estimator, ExactCounter

_SILENCE = 120.0


class Wire(Protocol):
    """One provider's protocol through its official package; `sdk` is that package."""

    @property
    def name(self) -> str: ...

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def sdk(self) -> Any: ...

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: Params) -> dict[str, Any]: ...

    def deltas(self, request: dict[str, Any]) -> Deltas: ...

    async def aclose(self) -> None: ...


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
    ) -> None:
        self.name = wire.name
        self.context_window = limits.context_window
        self.max_output_tokens = limits.max_output_tokens
        self._wire = wire
        self._counter = counter
        self._clock = clock
        self._retries = retries
        self._randomness = randomness or SystemRandomness()

    def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        request = self._wire.request(messages, tools, params)
        silence = params.timeout or _SILENCE
        deltas = resend(
            lambda: paced(self._attempt(request), silence, self._wire.endpoint), self._retries, self._randomness
        )
        return observed(deltas, self._counter, messages, tools)

    def count_tokens(self, text: str) -> int:
        return self._counter.count(text)

    async def count_request(self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = ()) -> int:
        """The provider's own count of a request, over the network; a Problem where its protocol has none."""
        count = getattr(self._wire, "count", None)
        if count is None:
            raise Problem(
                "capability_not_provided",
                f"{self._wire.endpoint.provider} does not count tokens for others.",
                fix="Use `count_tokens`.",
            )
        with translated(self._wire.sdk, self._wire.endpoint, self._clock):
            tokens: int = await count(messages, tools)
        return tokens

    async def aclose(self) -> None:
        await self._wire.aclose()

    async def _attempt(self, request: dict[str, Any]) -> Deltas:
        with translated(self._wire.sdk, self._wire.endpoint, self._clock):
            deltas = self._wire.deltas(request)
            try:
                async for delta in deltas:
                    yield delta
            finally:
                await deltas.aclose()
