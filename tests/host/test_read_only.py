"""A host that is opened for somebody who only looks does nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forestay.governance import Triggers
from forestay.host import Options, open_host
from forestay.kernel import OPERATOR, Config, ModelEntry, Models
from forestay.runs import CreateRun, Runs, Schedules, Webhooks
from tests.console.served import review


async def test_no_work_goes_on_because_somebody_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_host(Options(root=tmp_path)) as host:
        await host.runs.put_workflow(review("Publish?"), tenant=OPERATOR)
        made = await host.runs.create_run(CreateRun(workflow_id="review"), OPERATOR)
        async for event in host.runs.follow(made.run_id, OPERATOR):
            if event.type == "interrupt.requested":
                break

    async def started(self: Any) -> None:
        raise AssertionError(f"{type(self).__name__} was started")

    for part in (Runs, Schedules, Webhooks, Triggers):
        monkeypatch.setattr(part, "start", started)
    heads = []
    for _ in range(2):
        async with open_host(Options(root=tmp_path, read_only=True)) as host:
            run = await host.runs.get_run(made.run_id, OPERATOR)
            assert (run.status, await host.runs.count_questions(OPERATOR)) == ("waiting-approval", 1)
            heads.append([await host.ledger.head(stream) for stream in (f"run/{made.run_id}", "audit")])
    assert heads[0] == heads[1]
    with pytest.raises(AssertionError, match="was started"):
        async with open_host(Options(root=tmp_path)):
            pass


async def test_who_looks_needs_no_model(tmp_path: Path) -> None:
    entry = ModelEntry(model="m", base_url="https://h.example/v1", api_key_env="KEY_THAT_NOBODY_SET")
    settings = Config(models=Models(default="keyed", entries={"keyed": entry}))
    async with open_host(Options(config=settings, root=tmp_path, read_only=True)) as host:
        assert await host.runs.count_questions(OPERATOR) == 0
