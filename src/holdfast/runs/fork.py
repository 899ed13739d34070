"""Fork: a new run whose history is another's up to a sequence (placeholder until replay is in)."""

from __future__ import annotations

from holdfast.runs.engine import Engine
from holdfast.runs.types import ForkRequest, RunForked


async def fork_run(engine: Engine, run_id: str, request: ForkRequest, principal: str | None) -> RunForked:
    raise NotImplementedError
