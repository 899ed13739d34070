"""Schedules over HTTP (W4)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, refused


def spec(api: Api, **more: Any) -> dict[str, Any]:
    return {"workflowId": api.workflow("noop"), "cron": "0 3 1 1 *", "timezone": "Europe/Berlin", **more}


def test_a_schedule_is_made_changed_rested_and_ended(api: Api) -> None:
    answer = api.post("/v1/schedules", spec(api))
    assert answer.status_code == 201
    made = answer.json()
    path = f"/v1/schedules/{made['scheduleId']}"
    assert made["nextAt"].endswith("-01-01T02:00:00.000Z")
    assert api.get(path).json() == made
    assert made["scheduleId"] in [item["scheduleId"] for item in api.get("/v1/schedules").json()["schedules"]]
    changed = api.http.put(path, json=spec(api, cron="30 3 1 1 *"))
    assert changed.json()["nextAt"].endswith("-01-01T02:30:00.000Z")
    paused = api.post(f"{path}:pause").json()
    assert paused["state"] == "paused" and "nextAt" not in paused
    assert api.post(f"{path}:resume").json()["nextAt"]
    refused(api.caller("other").get(path), 404, "not_found")
    assert api.http.delete(path).status_code == 204
    refused(api.get(path), 404, "not_found")


def test_backfill_starts_each_moment_once(api: Api) -> None:
    made = api.post("/v1/schedules", spec(api, cron="0 * * * *", timezone="UTC")).json()
    path = f"/v1/schedules/{made['scheduleId']}"
    body = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T03:00:00Z"}
    first = api.post(f"{path}:backfill", body)
    assert first.status_code == 200
    assert [item["scheduledFor"][11:16] for item in first.json()["runs"]] == ["00:00", "01:00", "02:00", "03:00"]
    assert api.post(f"{path}:backfill", body).json() == first.json()
    for item in first.json()["runs"]:
        assert api.wait(item["runId"])["metadata"]["scheduleId"] == made["scheduleId"]
    details = refused(api.post(f"{path}:backfill", {**body, "from": "2020-01-01T00:00:00Z"}), 400, "validation_error")
    assert details["limit"] == 1000
    api.http.delete(path)


@pytest.mark.parametrize(
    "change", [{"cron": "no"}, {"cron": "0 0 30 2 *"}, {"timezone": "Mars/Base"}, {"overlap": "maybe"}, {"unknown": 1}]
)
def test_bad_schedules_are_refused(api: Api, change: dict[str, Any]) -> None:
    refused(api.post("/v1/schedules", spec(api, **change)), 400, "validation_error")


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"tags": ["fine", ""]}, "$.tags[1]"),
        ({"tags": ["t" * 257]}, "$.tags[0]"),
        ({"tags": ["t"] * 101}, "$.tags"),
        ({"configurable": {"recursionLimit": 0}}, "$.configurable.recursionLimit"),
        ({"configurable": {"temperature": 3}}, "$.configurable.temperature"),
    ],
)
def test_a_schedule_is_refused_for_what_its_runs_would_be(api: Api, change: dict[str, Any], at: str) -> None:
    assert refused(api.post("/v1/schedules", spec(api, **change)), 400, "validation_error")["at"] == at
    made = api.post("/v1/schedules", spec(api)).json()
    path = f"/v1/schedules/{made['scheduleId']}"
    assert refused(api.http.put(path, json=spec(api, **change)), 400, "validation_error")["at"] == at
    assert api.get(path).json() == made
    api.http.delete(path)


def test_a_schedule_of_nothing_is_refused(api: Api) -> None:
    refused(api.post("/v1/schedules", spec(api, workflowId="there-is-none")), 404, "not_found")
