"""Ended runs are sealed and removed as the settings say (Y1 to Y3), over HTTP as callers see it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from forestay.host import Options, Retention
from forestay.kernel import Config, Ledger, ManualClock, Problem, RetentionSettings
from forestay.surface import Serving, serve
from tests.contracts.openwop.documents import DOCUMENTS
from tests.postgres import new_ledger
from tests.surface.test_front import Story, finished

DAY = 24 * 3600 * 1000
SETTINGS = RetentionSettings(seal_after_days=30, remove_after_days=90)


def run(folder: Path, story: Story, ledger: str = "") -> None:
    async def whole() -> None:
        options = Options(data=folder, config=msgspec.convert({"data": {"ledger": ledger}}, Config))
        async with asyncio.timeout(60), serve(options) as serving:
            headers = {"Authorization": f"Bearer {serving.services.keys.lend()}"}
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False, timeout=30) as http:
                await story(serving, http)

    asyncio.run(whole())


def _retention(serving: Serving, days: float, settings: RetentionSettings = SETTINGS) -> Retention:
    host = serving.host
    return Retention(
        host.ledger, ManualClock(host.clock.now_ms() + round(days * DAY)), host.locks, settings, host.runs.forget
    )


async def _made(http: httpx.AsyncClient, count: int) -> list[str]:
    await http.put("/v1/workflows/suite-noop", json=DOCUMENTS["noop"])
    return [(await finished(http, {"workflowId": "suite-noop"}))["runId"] for _ in range(count)]


async def _seen(http: httpx.AsyncClient, run_id: str) -> list[Any]:
    paths = ("", "/events/poll?timeout=1", "/annotations")
    return [(await http.get(f"/v1/runs/{run_id}{path}")).json() for path in paths]


async def _in_table(ledger: Ledger, stream: str) -> int:
    sql = "SELECT count(*) FROM records r JOIN streams s ON s.id = r.stream WHERE s.name = ?"
    return int((await ledger.query(sql, (stream,)))[0][0])


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_an_ended_run_is_sealed_then_removed(tmp_path: Path, backend: str) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        ledger = serving.host.ledger
        (run_id,) = await _made(http, 1)
        said = {"signal": {"kind": "rating", "rating": 5}}
        noted = await http.post(f"/v1/runs/{run_id}/annotations", json=said)
        assert noted.status_code == 201, noted.text
        before = await _seen(http, run_id)

        assert await _retention(serving, 29).sweep() == await _retention(serving, 29).sweep()
        assert await _in_table(ledger, f"run/{run_id}") > 0  # it is not due

        swept = await _retention(serving, 31).sweep()
        assert (swept.sealed > 0, swept.removed) == (True, 0)
        assert await _in_table(ledger, f"run/{run_id}") == await _in_table(ledger, f"annotations/{run_id}") == 0
        assert await _seen(http, run_id) == before
        assert (await _retention(serving, 31).sweep()).sealed == 0

        head = await ledger.head(f"run/{run_id}")
        assert (await _retention(serving, 91).sweep()).removed == 2
        answer = await http.get(f"/v1/runs/{run_id}/events/poll?timeout=1")
        assert answer.status_code == 410, answer.text
        assert answer.json()["details"]["policy"] == {"setting": "retention.remove_after_days", "days": 90.0}
        assert await ledger.head(f"run/{run_id}") == head
        with pytest.raises(Problem, match="were removed at"):
            _ = [line async for line in ledger.export(f"run/{run_id}")]
        assert (await http.get("/v1/runs")).json()["runs"][0]["runId"] == run_id  # the list knows that it was
        found = await ledger.verify()
        assert (found.ok, found.removed > 0) == (True, True)
        assert (await http.get("/v1/audit/verify")).json()["chainValid"] is True

    run(tmp_path, story, new_ledger() if backend == "postgres" else "")


def test_a_removed_run_is_gone_for_a_host_that_starts_later(tmp_path: Path) -> None:
    made = []

    async def first(serving: Serving, http: httpx.AsyncClient) -> None:
        made.extend(await _made(http, 20))
        swept = await _retention(serving, 91).sweep()
        assert (swept.removed, swept.more) == (16, True)  # a round is bounded (Y2)
        swept = await _retention(serving, 91).sweep()
        assert (swept.removed, swept.more) == (4, False)

    async def then(serving: Serving, http: httpx.AsyncClient) -> None:
        for path in ("", "/events/poll?timeout=1", "/events", ":fork"):
            method = "POST" if path == ":fork" else "GET"
            answer = await http.request(
                method, f"/v1/runs/{made[0]}{path}", json={"mode": "replay"} if path == ":fork" else None
            )
            assert answer.status_code == 410, (path, answer.status_code, answer.text)
        assert (await finished(http, {"workflowId": "suite-noop"}))["status"] == "completed"

    run(tmp_path, first)
    run(tmp_path, then)


def test_a_run_that_goes_on_stays(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        ledger = serving.host.ledger
        (run_id,) = await _made(http, 1)
        await http.put("/v1/workflows/suite-approval", json=DOCUMENTS["approval"])
        open_run = (await http.post("/v1/runs", json={"workflowId": "suite-approval"})).json()["runId"]
        swept = await _retention(serving, 400).sweep()
        assert swept.removed == 1
        assert await ledger.removal(f"run/{run_id}") is not None
        assert await ledger.removal(f"run/{open_run}") is None

    run(tmp_path, story)


def test_without_settings_nothing_is_sealed(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        await _made(http, 1)
        retention = _retention(serving, 10_000, RetentionSettings())
        assert not retention.is_asked_for
        assert (await retention.sweep()).sealed == 0

    run(tmp_path, story)


@pytest.mark.parametrize("boundary", range(7))
def test_a_crash_at_any_append_of_a_round_leaves_a_whole_ledger(tmp_path: Path, boundary: int) -> None:
    """The process ends before one of the six writes of a round: an archive of the annotation, its sealing, the archives
    of the runs, their sealing, the removal of the annotation, that of the runs. A later round finishes."""
    made: list[str] = []
    before: list[Any] = []

    async def crash(serving: Serving, http: httpx.AsyncClient) -> None:
        made.extend(await _made(http, 2))
        await http.post(f"/v1/runs/{made[0]}/annotations", json={"signal": {"kind": "rating", "rating": 5}})
        before.extend([await _seen(http, run_id) for run_id in made])
        ledger = serving.host.ledger
        writes, left = ledger._writer.put, [boundary]  # type: ignore[attr-defined]

        def put(ticket: Any, *, later: bool = False) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Problem("ledger_closed", "The process ended here.")
            writes(ticket, later=later)

        ledger._writer.put = put  # type: ignore[attr-defined]
        if boundary < 6:
            with pytest.raises(Problem, match="ended here"):
                await _retention(serving, 91).sweep()
        else:
            assert (await _retention(serving, 91).sweep()).removed == 3
        ledger._writer.put = writes  # type: ignore[attr-defined]

    async def then(serving: Serving, http: httpx.AsyncClient) -> None:
        ledger = serving.host.ledger
        assert (await ledger.verify()).ok
        for run_id, seen in zip(made, before, strict=True):
            gone = await ledger.removal(f"run/{run_id}"), await ledger.removal(f"annotations/{run_id}")
            if gone == (None, None):
                assert await _seen(http, run_id) == seen
        while (await _retention(serving, 91).sweep()).removed:
            pass
        assert [(await http.get(f"/v1/runs/{run_id}")).status_code for run_id in made] == [410, 410]
        found = await ledger.verify()
        assert (found.ok, found.removed > 0) == (True, True)

    run(tmp_path, crash)
    run(tmp_path, then)
