"""The open interrupts of a tenant's runs that wait for a person, oldest first."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.runs.service import Runs
from forestay.runs.types import Interrupt

_MOST_RUNS = 200
_TELLING = ("message", "title", "prompt", "question", "description")


class Prompt(msgspec.Struct, frozen=True):
    """An open interrupt and its run."""

    run_id: str
    workflow_id: str
    interrupt: Interrupt

    @property
    def text(self) -> str:
        """The question in the run's own words."""
        data: dict[str, Any] = self.interrupt.data if isinstance(self.interrupt.data, dict) else {}
        said = next((data[name] for name in _TELLING if isinstance(data.get(name), str) and data[name]), None)
        return str(said) if said else f"{self.interrupt.node_id} waits for an answer."


class Pending(msgspec.Struct, frozen=True):
    """Open questions, those of the oldest run first, and the number of further ones."""

    prompts: list[Prompt]
    more: int


async def pending_prompts(runs: Runs, tenant: str) -> Pending:
    """Return the open questions of a tenant; only runs that ask are read."""
    asking = await runs.asking(tenant, _MOST_RUNS)
    prompts = [
        Prompt(run_id, workflow_id, interrupt)
        for run_id, workflow_id in asking
        for interrupt in await runs.interrupts(run_id, tenant)
    ]
    return Pending(prompts, max(0, await runs.count_questions(tenant) - len(prompts)))
