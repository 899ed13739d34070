"""Small mistakes in the engine and the dispatcher, of the kind that a reader does not see.

Each is one change of one function. The simulation must find every one of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from forestay.kernel import Append, Draft, Problem
from forestay.runs import idempotency
from forestay.runs.actor import RunActor
from forestay.runs.execution import Execution
from forestay.runs.family import Family
from forestay.runs.leases import LogLeases
from forestay.runs.service import Runs
from forestay.runs.webhooks import Webhooks


def identity_with_attempt(patch: pytest.MonkeyPatch) -> None:
    """A retry asks for its effect under another identity (F1)."""
    real = Execution.identity
    patch.setattr(Execution, "identity", lambda self, key, provider: real(self, f"{key}{self.attempt}", provider))


def state_ahead_of_the_log(patch: pytest.MonkeyPatch) -> None:
    """A run goes on with what could not be written (A2)."""

    def go_on(self: RunActor, problem: Problem) -> None:
        for future, _ in self._batch.waiters:
            if future is not None and not future.done():
                future.set_exception(problem)

    patch.setattr(RunActor, "_let_go", go_on)


def sleepers_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The sweep does not look for runs that only wait for a time (G3)."""

    async def due(self: LogLeases, room: int) -> list[str]:
        rows = await self._ledger.query("SELECT run_id FROM runs WHERE busy = 1")
        return [run_id for (run_id,) in rows]

    patch.setattr(LogLeases, "due", due)


def ends_of_children_unheard(patch: pytest.MonkeyPatch) -> None:
    """After a restart a parent does not ask which children ended meanwhile (G4)."""

    async def reconcile(self: Family, actor: RunActor) -> None:
        self.leave(actor)

    patch.setattr(Family, "reconcile", reconcile)


def running_nodes_forgotten(patch: pytest.MonkeyPatch) -> None:
    """After a restart the nodes that were under way do not run again (X1)."""
    patch.setattr(RunActor, "resume", lambda self, *, fence=False: self.poke())


def new_id_for_a_repeated_request(patch: pytest.MonkeyPatch) -> None:
    """A request that is repeated after a crash does not get the id that was reserved for it (K4)."""
    patch.setattr(idempotency, "_reserved", lambda last, digest, ids: ids.new())


def keys_of_all_tenants(patch: pytest.MonkeyPatch) -> None:
    """One tenant's Idempotency-Key is another's (K5)."""
    real = idempotency._stream
    patch.setattr(idempotency, "_stream", lambda tenant, operation, key: real("", operation, key))


def delivered_unasked(patch: pytest.MonkeyPatch) -> None:
    """A webhook counts as delivered before its receiver has answered (B1)."""
    real = Webhooks._deliver

    async def deliver(self: Webhooks, due: Any) -> None:
        said = {"deliveryId": due.delivery_id, "attempt": due.attempts + 1}
        await self._ledger.commit(Append(f"webhook/{due.webhook_id}", [Draft("webhook.delivered", said)]))
        await real(self, due)

    patch.setattr(Webhooks, "_deliver", deliver)


def tenant_not_asked(patch: pytest.MonkeyPatch) -> None:
    """A run is found by its id alone (OpenWOP §1.4)."""

    async def own(self: Runs, run_id: str, tenant: str) -> str:
        rows = await self._ledger.look_up("SELECT status FROM runs WHERE run_id = ?", (run_id,))
        if not rows:
            raise Problem("not_found", "There is no such run.", runId=run_id)
        return str(rows[0][0])

    patch.setattr(Runs, "_own", own)


def stream_begins_one_late(patch: pytest.MonkeyPatch) -> None:
    """A stream of events that goes on after a break begins one event too late (L8)."""
    real = Runs.follow

    def follow(self: Runs, run_id: str, tenant: str, from_sequence: int = 0, *rest: Any, **more: Any) -> Any:
        return real(self, run_id, tenant, from_sequence + (from_sequence > 0), *rest, **more)

    patch.setattr(Runs, "follow", follow)
