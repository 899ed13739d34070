"""The page of a form, over a clock that stands still (Y4)."""

from __future__ import annotations

from pathlib import Path

from forestay.host import Host
from forestay.kernel import OPERATOR, ManualClock
from forestay.surface.forms import RATE, Forms
from tests.runs.documents import node, workflow


async def test_y4_a_form_takes_so_many_in_a_time(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Host.open(root=tmp_path, data=tmp_path) as host:
        await host.runs.put_workflow(workflow("order", [node("n")]), tenant=OPERATOR)
        names = [
            (await host.triggers.subscriptions.subscribe(OPERATOR, "form", "order")).subscription_id for _ in range(2)
        ]
        forms = Forms(host, clock)

        async def taken(name: str) -> int:
            return (await forms.take(name, {"forestay.page": "forged"})).status_code

        assert [await taken(names[0]) for _ in range(RATE.burst + 1)] == [403] * RATE.burst + [429]
        assert await taken(names[1]) == 403, "another form goes on"
        clock.advance(1 / RATE.per_second)
        assert [await taken(names[0]) for _ in range(2)] == [403, 429]
