"""What waits for a person: the open questions of a tenant's runs, oldest first."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.host.opening import Host
from holdfast.runs.types import Interrupt, RunFilter

# A run that still works on another branch may ask all the same.
_WAITING = ["waiting-approval", "waiting-input", "waiting-external", "running", "paused"]
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


async def pending(host: Host, tenant: str) -> list[Prompt]:
    page = await host.runs.list_runs(RunFilter(status=_WAITING), tenant, limit=_MOST_RUNS)
    return [
        Prompt(run.run_id, run.workflow_id, interrupt)
        for run in reversed(page.runs)
        for interrupt in await host.runs.interrupts(run.run_id, tenant)
    ]
