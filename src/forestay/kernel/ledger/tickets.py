"""What callers ask of a ledger's writer, and how its thread answers them on their own event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from forestay.kernel.ledger.following import Deliveries, Feed
from forestay.kernel.ledger.projections import Database
from forestay.kernel.ledger.records import Append, Encoded, Record, check_stream, encode_draft
from forestay.kernel.problems import Problem

Job = Callable[[Database], Any]


class Ticket:
    """One caller's request: appends that go in together, or a job that needs the writing connection."""

    __slots__ = ("appends", "drafts", "error", "future", "job", "loop", "result", "size", "waiter")

    def __init__(self, appends: Sequence[Append], drafts: Sequence[Sequence[Encoded]], job: Job | None = None) -> None:
        self.appends = appends
        self.drafts = drafts
        self.job = job
        self.size = sum(len(item.payload) for group in drafts for item in group)
        self.result: Any = None
        self.error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.waiter: asyncio.Future[Any] | None = None  # for a caller on an event loop
        self.future: Future[Any] | None = None  # for a caller on a thread

    def settle(self) -> None:
        target: Any = self.waiter if self.waiter is not None else self.future
        if target is None or target.done():
            return
        if self.error is not None:
            target.set_exception(self.error)
        else:
            target.set_result(self.result)


def ticket_of(appends: Sequence[Append]) -> Ticket:
    """A ticket with everything checked and encoded: the caller's thread pays for that, not the writer."""
    names = set()
    for item in appends:
        check_stream(item.stream)
        if item.stream in names:
            raise Problem(
                "invalid_request", f"The stream {item.stream} stands twice in one commit.", stream=item.stream
            )
        names.add(item.stream)
    return Ticket(appends, [[encode_draft(draft) for draft in item.drafts] for item in appends])


def settle(group: list[Ticket], deliveries: Deliveries) -> None:
    """Bring followers their records and callers their answers: one wake-up per event loop, because waking a thread
    that sleeps costs more than everything else that is done here."""
    waiting: dict[asyncio.AbstractEventLoop, list[Ticket]] = {loop: [] for loop in deliveries}
    for ticket in group:
        if ticket.loop is None:
            ticket.settle()
        else:
            waiting.setdefault(ticket.loop, []).append(ticket)
    for loop, tickets in waiting.items():
        try:
            loop.call_soon_threadsafe(_arrive, deliveries.get(loop, ()), tickets)
        except RuntimeError:
            pass  # the loop was closed while the group was written; nobody is waiting


def _arrive(batch: Sequence[tuple[Feed, list[Record]]], tickets: list[Ticket]) -> None:
    for feed, records in batch:
        feed.push(records)
    for ticket in tickets:
        ticket.settle()
