"""What waits for a person: the open questions of a tenant's runs, oldest first."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.runs.service import Runs
from forestay.runs.types import Interrupt

_MOST_RUNS = 200
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
    """Open questions, those of the oldest run first, and how many more there are of runs that were not looked at."""

    prompts: list[Prompt]
    more: int


async def pending_prompts(runs: Runs, tenant: str) -> Pending:
    """The questions of the runs that ask; no other run is looked at."""
    asking = await runs.asking(tenant, _MOST_RUNS)
    prompts = [
        Prompt(run_id, workflow_id, interrupt)
        for run_id, workflow_id in asking
        for interrupt in await runs.interrupts(run_id, tenant)
    ]
    return Pending(prompts, max(0, await runs.count_questions(tenant) - len(prompts)))
