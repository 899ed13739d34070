"""A relay over a real ledger file, and models that behave as told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import Ledger, ManualClock, Problem, SeededRandomness
from forestay.models import DEFAULT_PARAMS, Delta, FinishReason, Message, Params, ToolCall, ToolSpec, Usage
from forestay.relay import Relay

SECRET = b"a secret for tests only, 32 byte"


class Pieces:
    """A model that answers its n-th call with the n-th piece: all but the last hit the wall."""

    max_output_tokens: int | None = None

    def __init__(
        self,
        pieces: Sequence[str],
        *,
        delta: Callable[[int], int] = lambda _: 7,
        context_window: int = 32_768,
        last: FinishReason | None = "stop",
        report: bool = True,
        token_characters: int = 4,
        name: str = "pieces",
    ) -> None:
        self.name = name
        self.pieces = list(pieces)
        self.context_window = context_window
        self.calls: list[list[Message]] = []
        self.params: list[Params] = []
        self.tools: list[Sequence[ToolSpec]] = []
        self._delta = delta
        self._last = last
        self._report = report
        self._size = token_characters

    def count_tokens(self, text: str) -> int:
        return -(-len(text) // self._size)

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> AsyncIterator[Delta]:
        place = len(self.calls)
        self.calls.append(list(messages))
        self.params.append(params)
        self.tools.append(tools)
        text = self.pieces[min(place, len(self.pieces) - 1)]
        at = 0
        while at < len(text):
            step = max(1, self._delta(at))
            yield Delta(text[at : at + step])
            at += step
        usage = Usage(sum(self.count_tokens(item.content) for item in messages), self.count_tokens(text))
        if place < len(self.pieces) - 1:
            yield Delta(finish_reason="length", usage=usage if self._report else None)
        elif self._last is not None:
            yield Delta(finish_reason=self._last, usage=usage if self._report else None)


class Endless(Pieces):
    """A model that fills every window it is given and never stops by itself."""

    def __init__(self, text: Callable[[int], str], **options: Any) -> None:
        super().__init__([""], **options)
        self._text = text

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> AsyncIterator[Delta]:
        place = len(self.calls)
        self.calls.append(list(messages))
        self.params.append(params)
        text = self._text(place)[: self._size * (params.max_tokens or 1)]
        yield Delta(text)
        used = Usage(sum(self.count_tokens(item.content) for item in messages), self.count_tokens(text))
        yield Delta(finish_reason="length", usage=used)


class Failing(Pieces):
    """A model that says `text`, then fails with a Problem, or just breaks off when `key` is None."""

    def __init__(self, key: str | None, text: str = "", **options: Any) -> None:
        super().__init__([text], **{"name": "failing", **options})
        self._key = key

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> AsyncIterator[Delta]:
        self.calls.append(list(messages))
        if self.pieces[0]:
            yield Delta(self.pieces[0])
        if self._key is not None:
            raise Problem(self._key, "The provider failed.")


class Calling(Pieces):
    """A model that makes the given tool calls, one turn after the other, then says `text`."""

    def __init__(self, turns: Sequence[Sequence[ToolCall]], text: str) -> None:
        super().__init__([text])
        self._turns = turns

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> AsyncIterator[Delta]:
        place = len(self.calls)
        self.calls.append(list(messages))
        self.tools.append(tools)
        if place < len(self._turns):
            yield Delta(tool_calls=tuple(self._turns[place]))
            yield Delta(finish_reason="tool_calls", usage=Usage(10, 5))
        else:
            yield Delta(self.pieces[0])
            yield Delta(finish_reason="stop", usage=Usage(10, 5))


@pytest.fixture
def ledger(tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    found = Ledger.open(tmp_path / "relay.db", projections=Relay.projections(), clock=clock)
    yield found
    found.close()


@pytest.fixture
def relay(ledger: Ledger, clock: ManualClock) -> Relay:
    return make_relay(ledger, clock)


def make_relay(ledger: Ledger, clock: ManualClock, model: Any = None, **options: Any) -> Relay:
    return Relay(
        ledger,
        secret=SECRET,
        model=model or Pieces(["An answer."]),
        clock=clock,
        randomness=SeededRandomness(ledger_seed(ledger)),
        **options,
    )


_seeds: dict[int, int] = {}


def ledger_seed(ledger: Ledger) -> int:
    """Another seed for each relay over one ledger: ids must differ as they would after a restart."""
    _seeds[id(ledger)] = _seeds.get(id(ledger), 0) + 1
    return _seeds[id(ledger)]
