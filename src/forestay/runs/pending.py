"""What waits for a person: the open questions of a tenant's runs, oldest first."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.runs.service import Runs
from forestay.runs.types import Interrupt, RunFilter, RunSummary

_WAITING: list[str] = ["waiting-approval", "waiting-input", "waiting-external"]
_WORKING: list[str] = ["running", "paused"]  # on another branch such a run may ask all the same
_MOST_RUNS = 200
_MOST_PAGES = 50
_TELLING = ("message", "title", "prompt", "question", "description")


class Prompt(msgspec.Struct, frozen=True):
    """An open interrupt and the run that asks it."""

    run_id: str
    workflow_id: str
    interrupt: Interrupt

    @property
    def text(self) -> str:
        """What the run says it wants to know."""
        data: dict[str, Any] = self.interrupt.data if isinstance(self.interrupt.data, dict) else {}
        said = next((data[name] for name in _TELLING if isinstance(data.get(name), str) and data[name]), None)
        return str(said) if said else f"{self.interrupt.node_id} waits for an answer."


class Pending(msgspec.Struct, frozen=True):
    """Open questions, oldest first, and how many waiting runs were not looked at because there are too many."""

    prompts: list[Prompt]
    more: int


async def pending_prompts(runs: Runs, tenant: str) -> Pending:
    waiting = await _oldest_first(runs, tenant, _WAITING)
    working = await _oldest_first(runs, tenant, _WORKING)
    looked_at = sorted([*waiting[:_MOST_RUNS], *working[:_MOST_RUNS]], key=lambda run: run.run_id)
    prompts = [
        Prompt(run.run_id, run.workflow_id, interrupt)
        for run in looked_at
        for interrupt in await runs.interrupts(run.run_id, tenant)
    ]
    return Pending(prompts, max(0, len(waiting) - _MOST_RUNS))


async def _oldest_first(runs: Runs, tenant: str, statuses: list[str]) -> list[RunSummary]:
    """The tenant's runs with these statuses; only rows of a table are read."""
    found: list[RunSummary] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await runs.list_runs(RunFilter(status=statuses), tenant, cursor, 200)
        found += page.runs
        cursor = page.next_cursor
        if cursor is None:
            break
    return found[::-1]
