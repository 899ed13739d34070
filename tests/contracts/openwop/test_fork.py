"""Replay, branch, diff, ancestry, debug bundle (OpenWOP §1.11, W14, W15)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, refused


@pytest.fixture(scope="module")
def ended(api: Api) -> str:
    run_id = api.start("chain")
    api.wait(run_id)
    return run_id


def shape(events: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(event["type"], event.get("nodeId")) for event in events]


@pytest.mark.parametrize("mode", ["replay", "branch"])
def test_a_fork_takes_the_same_way(api: Api, ended: str, mode: str) -> None:
    answer = api.post(f"/v1/runs/{ended}:fork", {"mode": mode, "fromSeq": 3})
    assert answer.status_code == 201
    made = answer.json()
    assert {"runId", "sourceRunId", "fromSeq", "mode", "status", "eventsUrl"} <= set(made)
    assert (made["sourceRunId"], made["fromSeq"], made["mode"]) == (ended, 3, mode)
    assert api.wait(made["runId"])["status"] == "completed"
    source, fork = api.events(ended), api.events(made["runId"])
    for before, after in zip(source[:3], fork[:3], strict=True):  # W14
        assert {**before, "runId": made["runId"]} == after


def test_replay_reproduces_the_events(api: Api, ended: str) -> None:
    made = api.post(f"/v1/runs/{ended}:fork", {"mode": "replay"}).json()
    assert made["fromSeq"] == 0
    api.wait(made["runId"])
    assert shape(api.events(made["runId"])) == shape(api.events(ended))
    diff = api.get(f"/v1/runs/{ended}:diff", params={"against": made["runId"]}).json()
    assert diff["divergedAtSeq"] is None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"mode": "branch"}, 400),
        ({"mode": "sideways"}, 400),
        ({}, 400),
        ({"mode": "replay", "runOptionsOverlay": {"inputs": {"a": 1}}}, 400),
        ({"mode": "branch", "fromSeq": -1}, 400),
        ({"mode": "branch", "fromSeq": 10_000}, 422),
        ({"mode": "replay", "fromSeq": 10_000}, 422),
    ],
)
def test_bad_forks_are_refused(api: Api, ended: str, body: Any, status: int) -> None:
    answer = api.post(f"/v1/runs/{ended}:fork", body)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) <= {"error", "message", "details"}


@pytest.mark.parametrize("mode", ["replay", "branch"])
def test_a_fork_begins_within_the_log(api: Api, ended: str, mode: str) -> None:
    last = api.events(ended)[-1]["sequence"]
    assert api.post(f"/v1/runs/{ended}:fork", {"mode": mode, "fromSeq": last}).status_code == 201
    beyond = api.post(f"/v1/runs/{ended}:fork", {"mode": mode, "fromSeq": last + 1})
    assert refused(beyond, 422, "replay_from_seq_out_of_range")["lastSequence"] == last


def test_diff_names_where_runs_went_apart(api: Api, ended: str) -> None:
    other = api.start("failing")
    api.wait(other)
    diff = api.get(f"/v1/runs/{ended}:diff", params={"against": other}).json()
    assert (diff["a"], diff["b"]) == (ended, other)
    assert diff["divergedAtSeq"] is not None and diff["eventDiffs"]
    refused(api.get(f"/v1/runs/{ended}:diff", params={"against": "run_none"}), 404, "not_found")
    refused(api.get(f"/v1/runs/{ended}:diff"), 400, "validation_error")


def test_ancestry_of_a_run_that_a_caller_started_has_no_parent(api: Api, ended: str) -> None:
    found = api.get(f"/v1/runs/{ended}/ancestry").json()
    assert set(found) == {"runId", "hostId", "parent"}
    assert found["runId"] == ended and found["parent"] is None


def test_w15_a_debug_bundle_holds_the_run(api: Api, ended: str) -> None:
    found = api.get(f"/v1/runs/{ended}/debug-bundle").json()
    assert found["bundleVersion"] == "1.0"
    assert {"generatedAt", "host", "run", "events", "redactionApplied", "redactionMode"} <= set(found)
    assert found["run"]["runId"] == ended
    assert len(found["events"]) == len(api.events(ended))


def test_w15_a_debug_bundle_is_redacted(api: Api) -> None:
    inputs = {"password": "open-sesame-42", "note": {"api_key": "sk-live-0123456789abcdef0123"}}
    run_id = api.start("secret", inputs)
    api.wait(run_id)
    bundle = api.get(f"/v1/runs/{run_id}/debug-bundle").text
    assert "open-sesame-42" not in bundle and "sk-live-0123456789abcdef0123" not in bundle
    assert "open-sesame-42" not in api.get(f"/v1/runs/{run_id}").text + str(api.events(run_id)), "passed on or not"


def test_ancestry_names_the_parent(api: Api) -> None:
    api.workflow("noop")
    parent = api.start("parent")
    api.wait(parent)
    (child,) = {event["payload"]["childRunId"] for event in api.events(parent) if event["type"] == "node.dispatched"}
    found = api.get(f"/v1/runs/{child}/ancestry").json()
    assert found["parent"]["runId"] == parent


def test_a_fork_of_a_fork_shows_what_its_sources_made(api: Api) -> None:
    run_id = api.start("artifact")
    api.wait(run_id)
    (made,) = api.get(f"/v1/runs/{run_id}/artifacts").json()["artifacts"]
    for _ in range(3):
        last = api.events(run_id)[-1]["sequence"]
        answer = api.post(f"/v1/runs/{run_id}:fork", {"mode": "branch", "fromSeq": last})
        assert answer.status_code == 201, answer.text
        run_id = answer.json()["runId"]
        shown = api.get(f"/v1/runs/{run_id}/artifacts/{made['artifactId']}")
        assert (shown.status_code, shown.json().get("data")) == (200, {"pages": 3}), shown.text


def test_w22_an_overlay_takes_every_run_option(api: Api) -> None:
    run_id = api.start("identity", {"payload": {"a": 1}}, tags=["old"], metadata={"kept": 1, "changed": 1})
    api.wait(run_id)
    tag = f"new-{run_id}"
    overlay = {
        "inputs": {"payload": {"a": 2}},
        "variables": {"more": True},
        "configurable": {"recursionLimit": 7},
        "metadata": {"changed": 2},
        "tags": [tag],
    }
    answer = api.post(f"/v1/runs/{run_id}:fork", {"mode": "branch", "fromSeq": 0, "runOptionsOverlay": overlay})
    assert answer.status_code == 201, answer.text
    fork = api.wait(answer.json()["runId"])
    assert fork["tags"] == [tag] and fork["metadata"] == {"kept": 1, "changed": 2}
    assert fork["inputs"] == {"payload": {"a": 2}} and fork["outputs"] == {"payload": {"a": 2}}
    assert fork["configurable"]["recursionLimit"] == 7 and fork["variables"]["more"] is True
    listed = api.get("/v1/runs", params={"tag": tag}).json()["runs"]
    assert [item["runId"] for item in listed] == [fork["runId"]] and listed[0]["tags"] == [tag]
    source = api.run(run_id)
    assert source["tags"] == ["old"] and source["metadata"] == {"kept": 1, "changed": 1}
    again = api.post(f"/v1/runs/{fork['runId']}:fork", {"mode": "replay"}).json()["runId"]
    assert api.wait(again)["tags"] == [tag], "a replay of a branch has what the branch has"


@pytest.mark.parametrize(
    ("overlay", "at"),
    [
        ({"tags": "one"}, "$.runOptionsOverlay.tags"),
        ({"tags": [""]}, "$.runOptionsOverlay.tags[0]"),
        ({"tags": ["ok", 5]}, "$.runOptionsOverlay.tags[1]"),
        ({"tags": ["x"] * 101}, "$.runOptionsOverlay.tags"),
        ({"metadata": []}, "$.runOptionsOverlay.metadata"),
        ({"metadata": {"a": "x" * 60_000}}, "$.runOptionsOverlay.metadata"),
        ({"colour": {}}, "$.runOptionsOverlay"),
    ],
)
def test_a_bad_overlay_is_refused_with_its_place(api: Api, ended: str, overlay: Any, at: str) -> None:
    answer = api.post(f"/v1/runs/{ended}:fork", {"mode": "branch", "fromSeq": 0, "runOptionsOverlay": overlay})
    assert answer.status_code in (400, 413), answer.text
    assert answer.json()["error"] == "validation_error" and answer.json()["details"]["at"] == at
