"""Runs: start, read, list, cancel, pause (OpenWOP §1.1, W4, W8, W9)."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.contracts.openwop.conftest import Api, refused
from tests.contracts.openwop.documents import DOCUMENTS


def test_a_run_is_made_and_ends(api: Api) -> None:
    answer = api.post("/v1/runs", {"workflowId": api.workflow("identity"), "inputs": {"payload": {"a": [1, None]}}})
    assert answer.status_code == 201
    made = answer.json()
    assert {"runId", "status", "eventsUrl"} <= set(made)
    assert answer.headers["location"] == f"/v1/runs/{made['runId']}"
    run = api.wait(made["runId"])
    assert run["status"] == "completed"
    assert {"runId", "workflowId", "status", "startedAt", "completedAt"} <= set(run)
    assert api.get(made["eventsUrl"]).status_code == 200


def test_events_are_in_order_from_zero(api: Api) -> None:
    run_id = api.start("chain")
    api.wait(run_id)
    events = api.events(run_id)
    assert [event["sequence"] for event in events] == list(range(len(events)))
    types = [event["type"] for event in events]
    assert types[0] == "run.started" and types[-1] == "run.completed"
    for event in events:
        assert {"eventId", "runId", "type", "payload", "timestamp", "sequence"} <= set(event)
        assert event["runId"] == run_id
    for name in {event["nodeId"] for event in events if event.get("nodeId")}:
        of_node = [event["type"] for event in events if event.get("nodeId") == name]
        assert of_node.index("node.started") < of_node.index("node.completed")


def test_a_failing_run_says_why(api: Api) -> None:
    run = api.wait(api.start("failing"), "failed")
    assert run["error"]["code"] and run["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"workflowId": None},
        {"workflowId": 5},
        {"workflowId": "suite-noop", "inputs": []},
        {"workflowId": "suite-noop", "unknown": 1},
        {"workflowId": "suite-noop", "tags": [1]},
        {"workflowId": "suite-noop", "tags": ["t"] * 101},
        [],
        "text",
    ],
)
def test_a_bad_body_is_refused(api: Api, body: Any) -> None:
    api.workflow("noop")
    refused(api.post("/v1/runs", body), 400, "validation_error")


def test_inputs_and_configurable_are_checked(api: Api) -> None:
    refused(api.post("/v1/runs", {"workflowId": api.workflow("identity")}), 400, "validation_error")
    name = api.workflow("configurable")
    for bad in ({"size": 0}, {"size": "big"}, {"other": 1}):
        refused(api.post("/v1/runs", {"workflowId": name, "configurable": bad}), 400, "validation_error")
    assert api.post("/v1/runs", {"workflowId": name, "configurable": {"size": 3}}).status_code == 201


def test_an_unknown_workflow_is_refused(api: Api) -> None:
    answer = api.post("/v1/runs", {"workflowId": "there-is-no-such-workflow"})
    assert answer.status_code in (400, 404)
    assert answer.json()["error"] in ("validation_error", "not_found")


def test_unknown_runs_are_not_found(api: Api) -> None:
    for path in ("", "/events", "/events/poll?timeout=1", "/ancestry", "/debug-bundle", "/artifacts/x", "/interrupts"):
        refused(api.get(f"/v1/runs/run_that_is_not_there{path}"), 404, "not_found")


def test_dedup_refuses_a_second_active_run(api: Api) -> None:
    scope = uuid.uuid4().hex
    name = api.workflow("approval")
    body = {"workflowId": name, "scopeId": scope}
    first = api.post("/v1/runs", body, headers={"X-Dedup": "enforce"})
    assert first.status_code == 201
    second = api.post("/v1/runs", body, headers={"X-Dedup": "enforce"})
    details = refused(second, 409, "run_already_active")
    assert details["activeRunId"] == first.json()["runId"]
    assert int(second.headers["retry-after"]) >= 1  # W22
    assert api.post("/v1/runs", body).status_code == 201  # without the header nobody asked
    other = {**body, "scopeId": uuid.uuid4().hex}
    assert api.post("/v1/runs", other, headers={"X-Dedup": "enforce"}).status_code == 201
    api.post(f"/v1/runs/{first.json()['runId']}/cancel")
    api.wait(first.json()["runId"], "cancelled")
    assert api.post("/v1/runs", body, headers={"X-Dedup": "enforce"}).status_code == 201


def test_forcing_an_engine_version_needs_a_test_key(api: Api) -> None:
    body = {"workflowId": api.workflow("noop")}
    headers = {"X-Force-Engine-Version": "1"}
    refused(api.post("/v1/runs", body, headers=headers), 403, "force_engine_version_forbidden")
    assert api.caller("test").post("/v1/runs", body, headers=headers).status_code in (201, 422)


def test_an_engine_version_out_of_range_is_refused(api: Api) -> None:
    body = {"workflowId": api.workflow("noop")}
    for version in ("999", "not-a-version"):
        headers = {"X-Force-Engine-Version": version}
        refused(api.caller("test").post("/v1/runs", body, headers=headers), 422, "version_out_of_range")


def test_mock_providers_need_a_test_key_and_a_known_name(api: Api) -> None:
    mock = {"id": "stream-text", "config": {"tokens": ["Hel", "lo"]}}
    body = {"workflowId": api.workflow("prompt"), "configurable": {"mockProvider": mock}}
    refused(api.post("/v1/runs", body), 403, "mock_provider_forbidden")
    tester = api.caller("test")
    for wrong in (
        {"id": "none"},
        {"id": "stream-text", "config": {"tokens": "x"}},
        {"id": "error", "x": 1, "config": 2},
    ):
        answer = tester.post("/v1/runs", {**body, "configurable": {"mockProvider": wrong}})
        refused(answer, 400, "validation_error")
    run_id = tester.post("/v1/runs", body).json()["runId"]
    assert tester.wait(run_id, "completed")["status"] == "completed"
    said = [data["payload"]["chunk"] for _, _, data in tester.stream(run_id, params={"streamMode": "messages"})]
    assert "".join(said) == "Hello"


def test_w4_runs_are_listed_newest_first_with_cursors(api: Api) -> None:
    tag = uuid.uuid4().hex
    started = [api.start("noop", tags=[tag]) for _ in range(5)]
    for run_id in started:
        api.wait(run_id)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"tag": tag, "limit": 2, **({"cursor": cursor} if cursor else {})}
        page = api.get("/v1/runs", params=params).json()
        seen += [run["runId"] for run in page["runs"]]
        cursor = page.get("nextCursor")
        if not cursor:
            break
    assert seen == started[::-1]
    assert len(api.get("/v1/runs", params={"tag": tag, "status": "completed"}).json()["runs"]) == 5
    assert api.get("/v1/runs", params={"tag": tag, "status": "failed"}).json()["runs"] == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "cursor=nonsense", "status=nonsense", "createdAfter=yesterday"]
)
def test_w4_bad_list_parameters_are_refused(api: Api, query: str) -> None:
    refused(api.get(f"/v1/runs?{query}"), 400, "validation_error")


def test_cancel_ends_a_run(api: Api) -> None:
    run_id = api.start("delay")
    answer = api.post(f"/v1/runs/{run_id}/cancel", {"reason": "enough"})
    assert answer.status_code == 200
    assert answer.json()["runId"] == run_id
    assert answer.json()["status"] in ("cancelling", "cancelled")
    assert api.wait(run_id, "cancelled")["status"] == "cancelled"
    assert api.events(run_id)[-1]["type"] == "run.cancelled"


def test_of_many_deduplicated_runs_one_starts_and_the_others_are_told_of_it(api: Api) -> None:
    body = {"workflowId": api.workflow("approval"), "scopeId": uuid.uuid4().hex}

    def ask(index: int) -> httpx.Response:
        keyed = {"Idempotency-Key": uuid.uuid4().hex} if index % 2 else {}
        return api.post("/v1/runs", body, headers={"X-Dedup": "enforce", **keyed})

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(ask, range(20)))
    (made,) = [answer.json()["runId"] for answer in answers if answer.status_code == 201]
    for answer in answers:
        if answer.status_code != 201:
            assert refused(answer, 409, "run_already_active")["activeRunId"] == made
            assert int(answer.headers["retry-after"]) >= 1


def test_bulk_cancel_answers_each_in_order(api: Api) -> None:
    running = [api.start("delay") for _ in range(2)]
    ids = [running[0], "run_not_there", running[1]]
    answer = api.post("/v1/runs:bulk-cancel", {"runIds": ids})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [item["runId"] for item in results] == ids
    assert [item["ok"] for item in results] == [True, False, True]
    assert results[1]["error"]["code"] == "not_found" and results[1]["error"]["message"]  # W22
    for run_id in running:
        api.wait(run_id, "cancelled")
    assert api.post("/v1/runs:bulk-cancel", {"runIds": ["run_not_there"]}).status_code == 200


@pytest.mark.parametrize("ids", [[], ["x"] * 101, "run_x", [1]])
def test_bulk_cancel_bounds_its_list(api: Api, ids: Any) -> None:
    details = refused(api.post("/v1/runs:bulk-cancel", {"runIds": ids}), 400, "validation_error")
    if len(ids) > 100:
        assert details["maxRunIds"] == 100


def test_pause_and_resume(api: Api) -> None:
    run_id = api.start("approval")
    api.wait(run_id, "waiting-approval")
    paused = api.post(f"/v1/runs/{run_id}:pause", {"reason": "later"})
    assert paused.status_code == 202
    assert paused.json()["status"] == "paused" and paused.json()["pausedAt"]
    details = refused(api.post(f"/v1/runs/{run_id}:pause"), 409, "conflict")
    assert details["runStatus"] == "paused"
    resumed = api.post(f"/v1/runs/{run_id}:resume")
    assert resumed.status_code == 202 and resumed.json()["resumedAt"]
    details = refused(api.post(f"/v1/runs/{run_id}:resume"), 409, "conflict")
    assert details["runStatus"] == "waiting-approval"
    api.post(f"/v1/runs/{run_id}/cancel")


def test_w17_a_pause_drains_or_is_immediate(api: Api) -> None:
    run_id = api.start("delay", {"delayMs": 700})
    assert api.post(f"/v1/runs/{run_id}:pause", {"reason": "later"}).status_code == 202
    api.wait(run_id, "paused")
    types = [event["type"] for event in api.events(run_id)]
    assert types.index("node.completed") < types.index("run.paused")
    api.post(f"/v1/runs/{run_id}:resume")
    assert api.wait(run_id)["status"] == "completed"
    run_id = api.start("delay", {"delayMs": 60_000})
    assert api.post(f"/v1/runs/{run_id}:pause", {"drainPolicy": "immediate"}).status_code == 202
    api.wait(run_id, "paused")
    (told,) = [event["payload"] for event in api.events(run_id) if event["type"] == "run.paused"]
    assert told["drainPolicy"] == "immediate"
    refused(api.post(f"/v1/runs/{run_id}:pause", {"drainPolicy": "someday"}), 400, "validation_error")
    api.post(f"/v1/runs/{run_id}/cancel")


def test_w20_votes_go_by_user_and_entries_with_a_time_to_live_say_when(api: Api) -> None:
    run = api.wait(api.start("votes"))
    assert run["status"] == "completed", run
    votes = run["channels"]["poll"]
    assert len(votes) == 2 and "no" in str(votes)
    (entry,) = run["channels"]["notes"]
    assert entry["value"] == "seen" and isinstance(entry["_ts"], int)


def test_w21_parents_and_children_show_each_other(api: Api) -> None:
    api.workflow("approval")
    run_id = api.start("waiting-parent")
    parent = api.wait(run_id, "waiting-approval")
    (child,) = parent["childRuns"]
    shown = api.run(child["runId"] if isinstance(child, dict) else child)
    assert (shown["parentRunId"], shown["parentNodeId"]) == (run_id, "sub")
    assert shown["status"] == "waiting-approval"
    api.post(f"/v1/runs/{run_id}/cancel")


def test_a_loop_beyond_what_the_host_does_is_refused_when_it_is_stored(api: Api) -> None:
    document = DOCUMENTS["loops"]
    refused(api.http.put(f"/v1/workflows/{document['id']}", json=document), 400, "validation_error")
    limits = api.get("/.well-known/openwop").json()["limits"]
    assert limits["maxLoopIterations"] >= 2500


def test_an_ended_run_cannot_be_paused(api: Api) -> None:
    run_id = api.start("noop")
    api.wait(run_id)
    details = refused(api.post(f"/v1/runs/{run_id}:pause"), 409, "conflict")
    assert details["runStatus"] == "completed"


def test_w4_signals_wake_a_run_and_queries_read_it(api: Api) -> None:
    run_id = api.start("waiting")
    api.wait(run_id, "waiting-external")
    asked = api.get(f"/v1/runs/{run_id}/query", params={"expression": "status"})
    assert (asked.status_code, asked.json()) == (200, {"value": "waiting-external"})
    answer = api.post(f"/v1/runs/{run_id}/signals/suite.go", {"payload": {"by": "suite"}})
    assert answer.status_code == 202
    assert api.wait(run_id)["status"] == "completed"
    refused(api.get(f"/v1/runs/{run_id}/query", params={"expression": "1 +"}), 400, "validation_error")


def test_evals_are_off_until_they_are_wired(api: Api, capabilities: dict[str, Any]) -> None:
    if (capabilities.get("agents") or {}).get("evalSuite"):
        pytest.skip("this host has evals")
    body = {"mode": "eval", "evalSuiteRef": "x", "agentId": "y"}
    refused(api.post("/v1/runs", body), 501, "capability_not_provided")


def test_artifacts_are_listed_and_read(api: Api) -> None:
    run_id = api.start("artifact")
    api.wait(run_id)
    (listed,) = api.get(f"/v1/runs/{run_id}/artifacts").json()["artifacts"]
    assert listed["artifactType"] == "report" and "data" not in listed
    path = f"/v1/runs/{run_id}/artifacts/{listed['artifactId']}"
    assert api.get(path).json()["data"] == {"pages": 3}
    refused(api.get(f"{path}x"), 404, "not_found")
    refused(api.caller("other").get(path), 404, "not_found")
    refused(api.caller("no_scopes").get(path), 403, "forbidden")
    refused(api.caller("").get(path), 401, "unauthenticated")


def test_the_word_null_in_a_query_is_a_text(api: Api) -> None:
    run_id = api.start("noop", tags=["null"])
    assert api.get("/v1/runs", params={"tag": "null"}).json()["runs"][0]["runId"] == run_id
    assert api.get(f"/v1/runs/{run_id}/query", params={"expression": "null"}).json() == {"value": None}


def test_a_whole_number_may_have_a_point(api: Api) -> None:
    run_id = api.start("chain")
    api.wait(run_id)
    made = api.http.post(
        f"/v1/runs/{run_id}:fork",
        content=b'{"mode": "branch", "fromSeq": 3.0}',
        headers={"Content-Type": "application/json"},
    )
    assert made.status_code == 201 and made.json()["fromSeq"] == 3
    half = api.http.post(f"/v1/runs/{run_id}:fork", content=b'{"mode": "branch", "fromSeq": 3.5}')
    refused(half, 400, "validation_error")
