"""K4 over HTTP: what a keyed request creates has the id that was reserved for it, so that a retry finds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from forestay.surface.hosting import Serving
from tests.contracts.openwop.documents import DOCUMENTS
from tests.surface.test_front import finished, run


@pytest.mark.parametrize(
    ("path", "body", "field", "kind"),
    [
        ("/v1/runs", {"workflowId": "suite-noop"}, "runId", "run"),
        ("/v1/runs/{run}:fork", {"mode": "replay"}, "runId", "run"),
        ("/v1/schedules", {"workflowId": "suite-noop", "cron": "0 0 1 1 *"}, "scheduleId", "sch"),
        ("/v1/webhooks", {"url": "https://hooks.example.com/", "events": ["run.completed"]}, "webhookId", "wh"),
    ],
)
def test_k4_what_is_created_has_the_reserved_id(
    tmp_path: Path, path: str, body: dict[str, Any], field: str, kind: str
) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        await http.put("/v1/workflows/suite-noop", json=DOCUMENTS["noop"])
        ended = await finished(http, {"workflowId": "suite-noop"})
        made = await http.post(path.format(run=ended["runId"]), json=body, headers={"Idempotency-Key": "k1"})
        assert made.status_code == 201, made.text
        (stream,) = await serving.host.ledger.streams("idem/")
        begun = (await serving.host.ledger.read(stream))[0]
        assert made.json()[field] == f"{kind}_{begun.payload['reserved']}"

    run(tmp_path, story)
