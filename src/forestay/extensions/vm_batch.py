"""Some ticks of one VM, on the thread that has it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from forestay.extensions import effects as said
from forestay.extensions.engine.limits import EngineTrap
from forestay.extensions.loop import Kind

if TYPE_CHECKING:
    from forestay.extensions.isolate import Isolate

BATCH_SECONDS = 0.05  # then the event loop hears what happened, even if there is more to run

Arrival = tuple[Kind, int, str, bytes]


class Batch(msgspec.Struct):
    """What came of some ticks."""

    effects: list[said.Effect]
    more: bool = False
    deadline_ms: int | None = None
    trap: EngineTrap | None = None


def run_batch(isolate: Isolate, arrivals: list[Arrival]) -> Batch:
    """Ticks until nothing is left to run, or it is time to report."""
    batch = Batch([])
    try:
        for arrival in arrivals:
            isolate.arrive(*arrival)
        until = time.monotonic() + BATCH_SECONDS
        while (found := isolate.tick()) is not None:
            batch.effects.extend(found)
            if isolate.at_rest:
                return batch
            if time.monotonic() > until:
                break
        batch.more, batch.deadline_ms = isolate.runnable(), isolate.deadline()
    except EngineTrap as trap:
        isolate.trapped(trap)
        batch.trap = trap
    return batch
