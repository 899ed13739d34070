"""The events of runs for callers: a run's secrets are masked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from forestay.kernel import Ledger, Record
from forestay.runs.engine import Engine
from forestay.runs.log import PRIVATE, stream_of, to_wire
from forestay.runs.secrets import TELLING, cover_event, may_have
from forestay.runs.state import RunState
from forestay.runs.types import TERMINAL_EVENTS, RunEvent
from forestay.runs.workflows import Ref, Workflows


class ShownEvents:
    """Reads the logs of runs; its callers have checked the tenant."""

    def __init__(self, ledger: Ledger, workflows: Workflows, engine: Engine) -> None:
        self._ledger = ledger
        self._workflows = workflows
        self._engine = engine

    async def read(self, run_id: str, from_sequence: int, limit: int | None = None) -> list[RunEvent]:
        """Return events with sequence >= `from_sequence`, in order."""
        records = await self._ledger.read(stream_of(run_id), max(0, from_sequence), limit)
        if records and await self._may_hide(run_id, records[0]):
            state = await self.known(run_id)
            return [cover_event(state, to_wire(record)) for record in records]
        return [to_wire(record) for record in records]

    async def follow(self, run_id: str, from_sequence: int) -> AsyncIterator[RunEvent]:
        """Yield events from `from_sequence` on, live, up to the terminal event."""
        state: RunState | None = None
        covered = await self._may_hide(run_id)
        async for event in self.live(run_id, max(0, from_sequence)):
            if covered and (state is None or event.sequence > state.seq or event.type in TELLING):
                state = await self.known(run_id)
            yield event if state is None else cover_event(state, event)

    async def live(self, run_id: str, start: int) -> AsyncIterator[RunEvent]:
        """Yield every event from `start` on (L8), unmasked; end at the terminal event, even if it is before `start`."""
        stream = stream_of(run_id)
        (last,) = await self._ledger.read(stream, 0, 1, reverse=True)
        if last.seq < start and last.type in TERMINAL_EVENTS:
            return
        async with contextlib.aclosing(self._ledger.follow(stream, min(start, last.seq + 1))) as records:
            async for record in records:
                if record.seq >= start:
                    yield to_wire(record)
                if record.type in TERMINAL_EVENTS:
                    return

    async def known(self, run_id: str) -> RunState:
        """Return a run's state with its secrets; it may be ahead of the log, which masks no less."""
        found = await self._engine.find(run_id)
        return found if isinstance(found, RunState) else found.state

    async def _may_hide(self, run_id: str, record: Record | None = None) -> bool:
        """Whether a run can have secrets, by its first event and its workflow: most logs are shown without a fold.

        `record` is one of the run's records; if it is the first, it is not read again.
        """
        if record is None or record.seq:
            (record,) = await self._ledger.read(stream_of(run_id), 0, 1)
        first = record.attrs[PRIVATE]
        return "secrets" in first or may_have((await self._workflows.at(Ref(*first["workflow"]))).plan)
