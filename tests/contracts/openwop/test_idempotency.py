"""One key, one execution, one answer (OpenWOP §1.5, W3, W9)."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

from tests.contracts.openwop.conftest import Api, refused

REPLAY = "openwop-Idempotent-Replay"


def key() -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex}


def test_a_repeated_request_gets_the_same_answer(api: Api) -> None:
    headers = key()
    body = {"workflowId": api.workflow("noop"), "inputs": {}, "tags": ["a"]}
    first = api.post("/v1/runs", body, headers=headers)
    again = api.post("/v1/runs", body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert REPLAY not in first.headers and again.headers[REPLAY] == "true"


def test_w9_the_digest_is_of_the_value_not_of_the_text(api: Api) -> None:
    headers = {**key(), "Content-Type": "application/json"}
    body = {"workflowId": api.workflow("noop"), "tags": ["a"]}
    first = api.http.post("/v1/runs", content=json.dumps(body), headers=headers)
    other = json.dumps(dict(reversed(body.items())), indent=3)
    again = api.http.post("/v1/runs", content=other, headers=headers)
    assert again.headers[REPLAY] == "true" and first.json() == again.json()


def test_w3_another_body_under_the_same_key_is_refused(api: Api) -> None:
    headers = key()
    name = api.workflow("noop")
    assert api.post("/v1/runs", {"workflowId": name}, headers=headers).status_code == 201
    answer = api.post("/v1/runs", {"workflowId": name, "tags": ["b"]}, headers=headers)
    refused(answer, 409, "idempotency_key_mismatch")


def test_exactly_one_of_many_duplicates_runs(api: Api) -> None:
    headers = key()
    tag = uuid.uuid4().hex
    body = {"workflowId": api.workflow("noop"), "tags": [tag]}
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: api.post("/v1/runs", body, headers=headers), range(24)))
    made = {answer.json()["runId"] for answer in answers if answer.status_code == 201}
    assert len(made) == 1
    for answer in answers:
        if answer.status_code != 201:
            refused(answer, 409, "idempotency_in_flight")
    assert len(api.get("/v1/runs", params={"tag": tag}).json()["runs"]) == 1


def test_a_refused_request_is_not_kept(api: Api) -> None:
    headers = key()
    name = api.workflow("configurable")
    bad = {"workflowId": name, "configurable": {"size": 0}}
    refused(api.post("/v1/runs", bad, headers=headers), 400, "validation_error")
    refused(api.caller("no_scopes").post("/v1/runs", bad, headers=headers), 403, "forbidden")
    good = api.post("/v1/runs", {"workflowId": name, "configurable": {"size": 1}}, headers=headers)
    assert good.status_code == 201 and REPLAY not in good.headers


def test_final_refusals_are_kept(api: Api) -> None:
    headers = key()
    first = api.post("/v1/runs/run_not_there/cancel", headers=headers)
    again = api.post("/v1/runs/run_not_there/cancel", headers=headers)
    refused(first, 404, "not_found")
    assert again.headers[REPLAY] == "true" and again.json() == first.json()


def test_keys_belong_to_a_tenant_and_an_operation(api: Api) -> None:
    headers = key()
    mine = api.post("/v1/runs", {"workflowId": api.workflow("noop")}, headers=headers)
    other = api.caller("other")
    theirs = other.post("/v1/runs", {"workflowId": other.workflow("noop"), "tags": ["x"]}, headers=headers)
    assert theirs.status_code == 201 and theirs.json()["runId"] != mine.json()["runId"]
    cancelled = api.post(f"/v1/runs/{mine.json()['runId']}/cancel", headers=headers)
    assert REPLAY not in cancelled.headers


def test_cancel_fork_and_resolve_honour_the_key(api: Api) -> None:
    run_id = api.start("approval")
    api.wait(run_id, "waiting-approval")
    headers = key()
    body = {"resumeValue": {"action": "accept"}}
    first = api.post(f"/v1/runs/{run_id}/interrupts/gate", body, headers=headers)
    again = api.post(f"/v1/runs/{run_id}/interrupts/gate", body, headers=headers)
    assert first.status_code == again.status_code == 200 and first.json() == again.json()
    api.wait(run_id)
    headers = key()
    forks = [
        api.post(f"/v1/runs/{run_id}:fork", {"mode": "branch", "fromSeq": 1}, headers=headers).json()["runId"]
        for _ in range(2)
    ]
    assert forks[0] == forks[1]


def test_reading_ignores_the_key(api: Api) -> None:
    headers = key()
    for _ in range(2):
        assert REPLAY not in api.get("/v1/runs", headers=headers).headers


def test_the_secret_of_a_webhook_is_shown_again_to_its_key(api: Api) -> None:
    headers = key()
    body = {"url": "https://hooks.example.com/x", "events": ["run.completed"]}
    first = api.post("/v1/webhooks", body, headers=headers)
    again = api.post("/v1/webhooks", body, headers=headers)
    assert first.status_code == again.status_code == 201
    assert first.json()["secret"] == again.json()["secret"]
    api.http.delete(f"/v1/webhooks/{first.json()['webhookId']}")
