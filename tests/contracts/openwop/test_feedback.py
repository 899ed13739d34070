"""Annotations (RFC 0056) and tool calls (RFC 0064) beyond the kit's scenarios."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, refused

FLAG = {"signal": {"kind": "flag"}, "note": "Look at this."}


@pytest.fixture(autouse=True)
def _offered(capabilities: dict[str, Any]) -> None:
    if not capabilities.get("feedback", {}).get("supported"):
        pytest.skip("this host takes no feedback")


def test_an_annotation_is_told_to_who_watches_and_is_no_event(api: Api) -> None:
    run_id = api.start("delay")
    other = api.caller("test")
    with api.http.stream("GET", f"/v1/runs/{run_id}/events") as watched:
        lines = watched.iter_lines()
        assert watched.status_code == 200
        made = other.post(f"/v1/runs/{run_id}/annotations", FLAG).json()
        heard = list(itertools.takewhile(lambda line: line != "event: run.annotated", lines))
        told = next(lines)
        assert other.post(f"/v1/runs/{run_id}/cancel").status_code == 200
        rest = list(lines)
    assert json.loads(told.removeprefix("data: ")) == made
    assert not heard or heard[-1] == "", "an annotation has no id to go on from"
    assert "event: run.cancelled" in rest
    assert "run.annotated" not in {event["type"] for event in api.events(run_id)}


def test_an_anchor_must_be_of_the_run(api: Api) -> None:
    run_id = api.start("chain")
    api.wait(run_id)
    event = api.events(run_id)[0]
    path = f"/v1/runs/{run_id}/annotations"
    kept = api.post(path, {**FLAG, "target": {"eventId": event["eventId"]}})
    assert kept.status_code == 201 and kept.json()["target"] == {"runId": run_id, "eventId": event["eventId"]}
    for wrong in ({"eventId": "nobody"}, {"nodeId": "nobody"}, {"runId": run_id}):
        refused(api.post(path, {**FLAG, "target": wrong}), 400, "validation_error")
    refused(api.caller("reader").post(path, FLAG), 403, "forbidden")
    bundle = api.get(f"/v1/runs/{run_id}/debug-bundle").json()
    assert [item["note"] for item in bundle["annotations"]] == ["Look at this."]


def test_the_same_request_keeps_one_annotation(api: Api) -> None:
    run_id = api.start("chain")
    path, headers = f"/v1/runs/{run_id}/annotations", {"Idempotency-Key": f"once-{run_id}"}
    first, again = (api.post(path, FLAG, headers=headers).json() for _ in range(2))
    assert first == again and len(api.get(path).json()["annotations"]) == 1


def test_a_tool_that_answers_is_told_with_its_time(api: Api) -> None:
    body = {"principal": "me", "toolName": "ls", "args": {"path": "."}}
    answer = api.post("/v1/host/sample/toolhooks/invoke", body)
    if answer.status_code == 404:
        pytest.skip("this host opens no test seams")
    found = answer.json()
    assert (found["toolReturned"]["status"], found["toolCalled"]["principal"]) == ("ok", "me"), found
    assert found["toolReturned"]["durationMs"] >= 0
    waits = api.post(
        "/v1/host/sample/toolhooks/invoke", {**body, "toolName": "write", "args": {"path": "a", "content": ""}}
    )
    refused(waits, 409, "conflict")


def test_a_session_with_a_tool_is_closed_whatever_becomes_of_the_run(api: Api) -> None:
    for tool, outcome in (("ls", "completed"), ("write", "cancelled")):  # a person would be asked about `write`
        answer = api.post("/v1/host/sample/tools/session-run", {"toolId": tool})
        if answer.status_code == 404:
            pytest.skip("this host opens no test seams")
        events = api.events(answer.json()["runId"])
        told = [event for event in events if event["type"].startswith(("tool.session.", "agent.tool", "run.c"))]
        kinds = [event["type"] for event in told]
        assert (kinds[0], kinds[-2:]) == ("tool.session.opened", ["tool.session.closed", kinds[-1]]), kinds
        assert kinds.count("agent.toolCalled") == (2 if tool == "ls" else 1)
        opened, closed = told[0]["payload"], told[-2]["payload"]
        assert closed == {**opened, "outcome": outcome} and opened["toolId"] == f"forestay:{tool}"
