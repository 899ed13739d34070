"""K4 over HTTP: what a keyed request creates has the id that was reserved for it, so that a retry finds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from forestay.kernel import Problem
from forestay.runs import Claim, Reply
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


def test_k4_a_close_that_a_crash_cut_off_is_answered_when_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's record of the close is on disk, the answer is not: the repeat hears the first answer, another
    request that the session is closed."""
    opened = []

    async def crash(serving: Serving, http: httpx.AsyncClient) -> None:
        made = await http.post("/crp/sessions", json={"app_id": "app"})
        assert made.status_code == 201, made.text
        opened.append(made.json()["session_id"])

        async def lost(claim: Claim, reply: Reply | None) -> None:
            raise Problem("ledger_closed", "The process ended here.")

        monkeypatch.setattr(serving.host.idempotency, "settle", lost)
        await http.post(f"/crp/sessions/{opened[0]}/close", headers={"Idempotency-Key": "k1"})
        records = await serving.host.ledger.read(f"relay/{opened[0]}")
        assert records[-1].type == "crp.session.close"

    async def again(serving: Serving, http: httpx.AsyncClient) -> None:
        (stream,) = await serving.host.ledger.streams("idem/")
        assert [record.type for record in await serving.host.ledger.read(stream)] == ["idempotency.begun"]
        close = f"/crp/sessions/{opened[0]}/close"
        for _ in range(2):
            answer = await http.post(close, headers={"Idempotency-Key": "k1"})
            assert (answer.status_code, answer.json()) == (200, {"session_id": opened[0], "closed": True})
        for headers in ({"Idempotency-Key": "k2"}, {}):
            other = await http.post(close, headers=headers)
            assert (other.status_code, other.json()["code"]) == (409, 1005)

    monkeypatch.setattr("forestay.runs.idempotency.LEASE_MS", 0)  # the host that ended is not waited for
    run(tmp_path, crash)
    run(tmp_path, again)
