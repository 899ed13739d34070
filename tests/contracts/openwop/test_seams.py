"""Test seams (OpenWOP §2): there with the flag, for callers with a key."""

from __future__ import annotations

import os

import pytest

from tests.contracts.openwop.conftest import Api, refused

SEAM = "/v1/host/sample/test/runs"


@pytest.fixture(autouse=True)
def _open(api: Api) -> None:
    if api.get(f"{SEAM}/__probe__/events").status_code in (404, 405):
        assert os.environ.get("FORESTAY_CONTRACT_URL"), "our own host was started with its seams"
        pytest.skip("this host has no seams")


def test_the_probe_is_an_empty_list(api: Api) -> None:
    answer = api.get(f"{SEAM}/__probe__/events")
    assert (answer.status_code, answer.json()) == (200, {"events": []})
    refused(api.caller("").get(f"{SEAM}/__probe__/events"), 401, "unauthenticated")


def test_events_are_read_back_by_type_and_node(api: Api) -> None:
    run_id = api.start("chain")
    api.wait(run_id)
    whole = api.get(f"{SEAM}/{run_id}/events").json()["events"]
    assert whole == api.events(run_id)
    found = api.get(f"{SEAM}/{run_id}/events", params={"type": "node.completed", "nodeId": "step2"}).json()["events"]
    assert [event["type"] for event in found] == ["node.completed"]
    assert api.get(f"{SEAM}/{run_id}/events", params={"causationId": "none"}).json() == {"events": []}
    assert api.caller("other").get(f"{SEAM}/{run_id}/events").json() == {"events": []}


def test_reset_ends_what_runs(api: Api) -> None:
    if "other" not in api.keys:
        pytest.skip("reset is tried on a tenant of its own")
    other = api.caller("other")
    run_id = other.start("approval")
    assert other.post("/v1/host/sample/test/reset").status_code == 200
    assert other.wait(run_id, "cancelled")["status"] == "cancelled"


def test_a_program_plays_the_mock_provider(api: Api) -> None:
    seam = "/v1/host/sample/test/mock-ai"
    staged = [{"content": '{"va', "stopReason": "max_tokens"}, {"content": '{"valid":true}'}]
    body = {"nodeId": "suite-structured-call", "program": staged}
    refused(api.caller("").post(f"{seam}/program", body), 401, "unauthenticated")
    refused(api.post(f"{seam}/program", {"program": staged}), 400, "validation_error")
    assert api.post(f"{seam}/program", body).status_code == 200
    run_id = api.start("structured")
    assert api.wait(run_id, "completed")
    types = [event["type"] for event in api.events(run_id)]
    assert types.index("envelope.truncated") < types.index("envelope.retry.attempted")
    budget = api.get(f"{seam}/last-dispatch-budget", params={"nodeId": "suite-structured-call"})
    assert budget.json()["maxTokens"] == 100, "a retry after a truncation has more room"
    other = api.caller("other").get(f"{seam}/last-dispatch-budget", params={"nodeId": "suite-structured-call"})
    assert other.json() == {"maxTokens": None}
