"""How a session writes: a record first, then the state it folds to.

O2  What changes the state is a record first; when writing fails, the state is read again before it is used again.
O5  Of several processes, one at a time writes a session. Each reads what the others wrote before it writes or answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from forestay.kernel import Append, Draft
from forestay.relay.drift import gate
from forestay.relay.facts import Batch
from forestay.relay.warm import Contradiction, Warm

if TYPE_CHECKING:
    from forestay.relay.relay import Relay


Write = Callable[[Append], Awaitable[object]]
"""Writes an append to disk, alone or together with the caller's own records, and then returns."""


class Journal:
    """The stream of one session and the warm state that is its fold.

    `write` is the ledger's commit, or that of a caller who commits the session's records together with its own.
    """

    def __init__(self, relay: Relay, session_id: str, warm: Warm, head: int) -> None:
        self.relay = relay
        self.id = session_id
        self.warm = warm
        self.write: Write = relay.ledger.commit
        self._head = head
        self._staged: list[Draft] = []
        self._stale = False

    @property
    def stream_name(self) -> str:
        return f"relay/{self.id}"

    @property
    def head(self) -> int:
        """The last record that the warm state has folded in and that is written."""
        return self._head

    def rests(self) -> bool:
        """Whether the warm state is what the written records fold to, and no dispatch is under way."""
        return not self._staged and not self._stale and self.warm.dispatch is None

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """No other process writes this session while the block runs (O5)."""
        async with self.relay.locks.at(self.stream_name, self.catch_up):
            yield

    async def catch_up(self) -> None:
        """Fold in what other processes wrote; what this one has begun to write is its own turn."""
        if self._staged or self._stale:
            return
        for record in await self.relay.ledger.read(self.stream_name, self._head + 1):
            if record.seq == self._head + 1 and not self._staged:  # else another task folded it meanwhile
                self.warm.apply(record.type, record.payload)
                self._head = record.seq

    def stage(self, *drafts: Draft) -> None:
        """Fold drafts in now and write them with the next `flush`."""
        for draft in drafts:
            self.warm.apply(draft.type, draft.payload)
            self._staged.append(draft)

    async def flush(self) -> None:
        """Write what is staged, in one append."""
        drafts, self._staged = self._staged, []
        if not drafts:
            return
        try:
            await self.write(Append(self.stream_name, drafts, self._head))
        except BaseException:
            self._stale = True
            raise
        self._head += len(drafts)
        self.relay.meters.count(drafts)

    def give(self, *drafts: Draft) -> Append:
        """What is staged and `drafts`, for the caller to commit. When that fails, the caller drops the session."""
        staged, self._staged = (*self._staged, *drafts), []
        given = Append(self.stream_name, staged, self._head)
        self._head += len(staged)
        self.relay.meters.count(staged)
        return given

    async def record(self, *drafts: Draft) -> None:
        async with self.alone():
            await self.refresh()
            self.stage(*drafts)
            await self.flush()

    def stage_facts(self, batches: Iterable[Batch]) -> None:
        """Facts, each batch with what is odd about it (CRP §1.5)."""
        for batch in batches:
            odd = gate(batch, self.warm.rates)
            self.stage(Draft("crp.extraction.complete", batch))
            if odd is not None:
                self.stage(Draft("crp.extraction.quality_gate", odd))

    async def refresh(self) -> None:
        """Read the state again when a write failed (O2)."""
        if self._stale:
            self.warm, self._head = await self.relay.fold(self.id)
            self._stale = False

    def settle_contradictions(self) -> list[Contradiction]:
        """Mark what was corrected: the older fact is superseded, and stays (C16)."""
        found = self.warm.open_contradictions
        if found:
            pairs = [[item.old, item.new] for item in found]
            self.stage(Draft("crp.extraction.contradiction", {"pairs": pairs}))
            self.stage(Draft("crp.facts.superseded", {"pairs": pairs}))
        return found
