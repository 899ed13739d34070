"""A stream of the ledger as a value that changes: `evolve` folds its records, a decision appends the next ones.

- J1  A decision is made over every record before the ones that it appends: when another came between, it is made again.
- J2  The value is a function of the stream; it is folded once and then brought up to date. Where nobody else writes the
      stream, that is done when this journal has written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from forestay.kernel import Append, Draft, Ledger, Problem, Record

S = TypeVar("S")


class Journal(Generic[S]):
    """One stream and the value that it stands for."""

    def __init__(
        self, ledger: Ledger, stream: str, initial: S, evolve: Callable[[S, Record], S], *, sole: bool = False
    ) -> None:
        """`sole`: nobody else writes this stream."""
        self._ledger = ledger
        self._sole = sole
        self._is_current = False
        self._stream = stream
        self._value = initial
        self._evolve = evolve
        self._seq = -1
        self._turn = asyncio.Lock()

    async def value(self) -> S:
        """The value as the ledger has it."""
        if self._is_current:
            return self._value
        for record in await self._ledger.read(self._stream, self._seq + 1):
            if record.seq == self._seq + 1:  # else another task folded it meanwhile
                self._value = self._evolve(self._value, record)
                self._seq = record.seq
        self._is_current = self._sole and not self._turn.locked()
        return self._value

    async def change(self, decide: Callable[[S], Sequence[Draft]], *beside: Append) -> S:
        """Append what `decide` says of the present value; a Problem that it raises changes nothing (J1). `beside` goes
        into other streams in the same commit."""
        async with self._turn:
            self._is_current = False
            while True:
                drafts = decide(await self.value())
                if not drafts:
                    return self._value
                try:
                    await self._ledger.commit(Append(self._stream, drafts, expect=self._seq), *beside)
                except Problem as problem:
                    if problem.key != "ledger_conflict" or (await self._ledger.head(self._stream)).seq == self._seq:
                        raise  # it was one of the others that did not fit
                    continue
                return await self.value()
