"""Writes the first events of a run, once. Where the id is taken, or where an active run must stay the only one, the
caller is told which run is there."""

from __future__ import annotations

import hashlib

import msgspec

from forestay.kernel import Append, Draft, Ledger, Problem
from forestay.runs.engine import Engine
from forestay.runs.log import stream_of
from forestay.runs.state import Event, RunState
from forestay.runs.types import TERMINAL, RunStatus
from forestay.runs.workflows import Stored

_DEDUP_RETRY_MS = 1000  # a run may take any time: come back soon and look


class Creation:
    def __init__(self, ledger: Ledger, engine: Engine) -> None:
        self._ledger = ledger
        self._engine = engine

    async def create(self, run_id: str, stored: Stored, events: list[Event], *extra: Append) -> RunState:
        """A run under this id; `run_already_active` when there is one."""
        try:
            fresh = [msgspec.structs.replace(event) for event in events]
            return await self._engine.create(run_id, stored, fresh, *extra)
        except Problem as problem:
            if problem.key != "ledger_conflict" or (extra and (await self._ledger.head(stream_of(run_id))).seq < 0):
                raise
            raise Problem("run_already_active", "This run exists already.", activeRunId=run_id) from problem

    async def create_alone(
        self, run_id: str, stored: Stored, events: list[Event], scope_id: str | None, tenant: str
    ) -> RunState:
        """A run that is the only active one of its workflow and scope; who comes second is told of the first (W9)."""
        while True:
            claim = await self._claim(tenant, stored.plan.workflow.id, scope_id, run_id)
            try:
                return await self.create(run_id, stored, events, claim)
            except Problem as problem:
                if problem.key != "ledger_conflict":  # else another run took the place meanwhile: look again
                    raise

    async def _claim(self, tenant: str, workflow_id: str, scope_id: str | None, run_id: str) -> Append:
        """The place that a deduplicated run takes: only one can have it while that run is active (W9)."""
        identity = hashlib.sha256("\0".join((tenant, workflow_id, scope_id or "")).encode()).hexdigest()[:40]
        stream = f"dedup/{identity}"
        head = await self._ledger.read(stream, 0, 1, reverse=True)
        if head:
            active = head[0].payload["runId"]
            if await self.status(active) not in TERMINAL:
                raise Problem(
                    "run_already_active",
                    "A run of this workflow and scope is active.",
                    retry_after_ms=_DEDUP_RETRY_MS,
                    activeRunId=active,
                )
        return Append(stream, [Draft("dedup.claimed", {"runId": run_id})], head[0].seq if head else -1)

    async def status(self, run_id: str) -> RunStatus | None:
        """The status in the table; None when there is no such run."""
        rows = await self._ledger.look_up("SELECT status FROM runs WHERE run_id = ?", (run_id,))
        return rows[0][0] if rows else None
