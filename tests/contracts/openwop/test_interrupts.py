"""Questions of a run and their answers (OpenWOP §1.1, §1.8, W7)."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from tests.contracts.openwop.conftest import Api, refused
from tests.contracts.openwop.documents import APPROVAL, node, workflow

ACCEPT = {"resumeValue": {"action": "accept"}}


def waiting(api: Api) -> str:
    run_id = api.start("approval")
    api.wait(run_id, "waiting-approval")
    return run_id


def question(api: Api, run_id: str) -> dict[str, Any]:
    (found,) = api.get(f"/v1/runs/{run_id}/interrupts").json()["interrupts"]
    return dict(found)


def test_w7_open_interrupts_are_listed_with_their_tokens(api: Api) -> None:
    run_id = waiting(api)
    found = question(api, run_id)
    assert {"interruptId", "nodeId", "kind", "token", "expiresAt", "data"} <= set(found)
    assert (found["nodeId"], found["kind"]) == ("gate", "approval")
    assert found["token"].count(".") == 1
    api.post(f"/v1/runs/{run_id}/cancel")


def test_w7_tokens_are_in_no_event_and_no_snapshot(api: Api) -> None:
    run_id = waiting(api)
    token = question(api, run_id)["token"]
    for path in (f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/events/poll", f"/v1/runs/{run_id}/debug-bundle"):
        text = api.get(path).text
        assert token not in text
        assert token.split(".")[1] not in text
    api.post(f"/v1/runs/{run_id}/cancel")


def test_resolving_by_node_goes_on(api: Api) -> None:
    run_id = waiting(api)
    answer = api.post(f"/v1/runs/{run_id}/interrupts/gate", ACCEPT)
    assert answer.status_code == 200
    assert api.wait(run_id)["status"] == "completed"
    refused(api.post(f"/v1/runs/{run_id}/interrupts/gate", ACCEPT), 409, "interrupt_already_resolved")


def test_resolving_by_token_needs_no_key(api: Api) -> None:
    run_id = waiting(api)
    token = question(api, run_id)["token"]
    nobody = api.caller("")
    view = nobody.get(f"/v1/interrupts/{token}")
    assert view.status_code == 200
    assert view.json()["nodeId"] == "gate" and "token" not in view.json()
    assert nobody.post(f"/v1/interrupts/{token}", ACCEPT).status_code == 200
    assert api.wait(run_id)["status"] == "completed"
    refused(nobody.post(f"/v1/interrupts/{token}", ACCEPT), 409, "interrupt_already_resolved")


def test_rejecting_fails_a_run_without_a_reject_edge(api: Api) -> None:
    run_id = waiting(api)
    body = {"resumeValue": {"action": "reject"}}
    assert api.post(f"/v1/runs/{run_id}/interrupts/gate", body).status_code == 200
    assert api.wait(run_id)["status"] == "failed"


def test_after_cancelling_an_answer_is_422(api: Api) -> None:
    run_id = waiting(api)
    token = question(api, run_id)["token"]
    api.post(f"/v1/runs/{run_id}/cancel")
    api.wait(run_id, "cancelled")
    refused(api.post(f"/v1/runs/{run_id}/interrupts/gate", ACCEPT), 422, "interrupt_cancelled")
    refused(api.caller("").post(f"/v1/interrupts/{token}", ACCEPT), 422, "interrupt_cancelled")


def test_a_token_that_was_changed_opens_nothing(api: Api) -> None:
    run_id = waiting(api)
    token = question(api, run_id)["token"]
    payload, signature = token.split(".")
    flipped = ("A" if signature[0] != "A" else "B") + signature[1:]
    for bad in (f"{payload}.{flipped}", f"{payload}x.{signature}", payload, "nonsense", ".", f"{payload}."):
        answer = api.caller("").post(f"/v1/interrupts/{bad}", ACCEPT)
        assert answer.status_code in (401, 403, 404), (bad, answer.text)
        assert set(answer.json()) <= {"error", "message", "details"}
    assert api.run(run_id)["status"] == "waiting-approval"
    api.post(f"/v1/runs/{run_id}/cancel")


@pytest.mark.parametrize("body", [{}, {"resumeValue": {"action": "maybe"}}, {"resumeValue": 5}, {"other": 1}])
def test_a_bad_answer_is_refused_and_the_question_stays(api: Api, body: Any) -> None:
    run_id = waiting(api)
    refused(api.post(f"/v1/runs/{run_id}/interrupts/gate", body), 400, "validation_error")
    assert api.run(run_id)["status"] == "waiting-approval"
    api.post(f"/v1/runs/{run_id}/cancel")


def test_a_node_that_asks_nothing_is_not_found(api: Api) -> None:
    run_id = waiting(api)
    refused(api.post(f"/v1/runs/{run_id}/interrupts/nobody", ACCEPT), 404, "not_found")
    api.post(f"/v1/runs/{run_id}/cancel")


def test_exactly_one_of_many_answers_wins(api: Api) -> None:
    run_id = waiting(api)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: api.post(f"/v1/runs/{run_id}/interrupts/gate", ACCEPT), range(20)))
    assert [answer.status_code for answer in answers].count(200) == 1
    for answer in answers:
        if answer.status_code != 200:
            refused(answer, 409, "interrupt_already_resolved")
    api.wait(run_id)
    types = [event["type"] for event in api.events(run_id)]
    assert types.count("interrupt.resolved") <= 1 and types.count("node.resumed") <= 1


def stored(api: Api, id: str, **config: Any) -> str:
    """A run of a workflow with one gate."""
    node = {"id": "gate", "typeId": "core.approvalGate", "name": "gate", "position": {"x": 0, "y": 0}, "inputs": {}}
    document = {
        "id": id, "name": id, "version": "1.0.0", "nodes": [{**node, "config": config}], "edges": [],
        "triggers": [{"id": "manual", "type": "manual"}], "variables": [], "metadata": {}, "settings": {},
    }  # fmt: skip
    answer = api.http.put(f"/v1/workflows/{id}", json=document)
    if answer.status_code not in (200, 201):
        pytest.skip(f"this host takes no workflow: {answer.text[:200]}")
    return str(api.post("/v1/runs", {"workflowId": id}).json()["runId"])


def test_w18_a_voter_votes_once(api: Api) -> None:
    run_id = stored(api, "suite-quorum", requiredApprovals=3)
    path = f"/v1/runs/{run_id}/interrupts/gate"
    assert api.post(path, ACCEPT).json()["resumed"] is False
    refused(api.post(path, ACCEPT), 409, "interrupt_already_resolved")
    named = {"resumeValue": {"action": "accept", "voter": "ben"}}
    assert api.post(path, named).json()["resumed"] is False
    refused(api.post(path, named), 409, "interrupt_already_resolved")
    made = api.post("/host/v1/keys", {"name": "plain-voter", "scopes": ["approvals:respond", "runs:read"]})
    if made.status_code == 201:
        headers = {"Authorization": f"Bearer {made.json()['result']['apiKey']}"}
        other = {"resumeValue": {"action": "accept", "voter": "cas"}}
        refused(api.post(path, other, headers=headers), 403, "forbidden")
        assert api.post(path, ACCEPT, headers=headers).json()["resumed"] is True
        api.wait(run_id)
        (received,) = [e["payload"] for e in api.events(run_id) if e["type"] == "approval.received"]
        assert received["decidedBy"] == made.json()["result"]["description"]["keyId"]


def test_w19_past_its_timeout_a_question_is_gone(api: Api) -> None:
    run_id = stored(api, "suite-brief", timeoutMs=400)
    token = question(api, run_id)["token"]
    assert api.wait(run_id)["status"] == "failed"
    refused(api.caller("").get(f"/v1/interrupts/{token}"), 410, "interrupt_expired")
    refused(api.caller("").post(f"/v1/interrupts/{token}", ACCEPT), 410, "interrupt_expired")
    refused(api.post(f"/v1/runs/{run_id}/interrupts/gate", ACCEPT), 410, "interrupt_expired")


def test_clarifications_are_answered_by_question(api: Api) -> None:
    run_id = api.start("clarification")
    api.wait(run_id, "waiting-input")
    body = {"resumeValue": {"answers": {"q1": "green"}}}
    assert api.post(f"/v1/runs/{run_id}/interrupts/ask", body).status_code == 200
    assert api.wait(run_id)["status"] == "completed"


@pytest.mark.parametrize("name", ["a/b", "/", "a//b/", "..", "../gate", "a%2Fb", "ü/ \N{SNOWMAN}", "a?b#c/d"])
def test_a_node_is_answered_by_its_id_whatever_it_is(api: Api, name: str) -> None:
    document = workflow(f"suite-{uuid.uuid4().hex}", node(name, "core.approvalGate", APPROVAL))
    assert api.http.put(f"/v1/workflows/{document['id']}", json=document).status_code == 201
    run_id = api.post("/v1/runs", {"workflowId": document["id"]}).json()["runId"]
    api.wait(run_id, "waiting-approval")
    elsewhere = quote(f"{name}/x", safe="")
    answer = {"resumeValue": {"action": "accept"}}
    refused(api.post(f"/v1/runs/{run_id}/interrupts/{elsewhere}", answer), 404, "not_found")
    place = quote(name, safe="").replace(".", "%2E")  # what a client may do to keep `..` from being taken for a step
    answered = api.post(f"/v1/runs/{run_id}/interrupts/{place}", answer)
    assert answered.status_code == 200 and answered.json()["nodeId"] == name, answered.text
    assert api.wait(run_id)["status"] == "completed"


def test_a_signal_may_have_a_slash_in_its_name(api: Api) -> None:
    document = workflow(f"suite-{uuid.uuid4().hex}", node("wait", "core.waitForEvent", {"event": "ship/left"}))
    assert api.http.put(f"/v1/workflows/{document['id']}", json=document).status_code == 201
    run_id = api.post("/v1/runs", {"workflowId": document["id"]}).json()["runId"]
    assert api.post(f"/v1/runs/{run_id}/signals/{quote('ship/left', safe='')}", {"payload": 1}).status_code == 202
    assert api.wait(run_id)["status"] == "completed"


def test_an_event_of_something_else_is_422(api: Api) -> None:
    waits = {"kind": "external-event", "data": {"eventType": "suite.order", "correlation": {"orderId": "7"}}}
    document = workflow("suite-order", node("wait", "core.interrupt", waits))
    assert api.http.put(f"/v1/workflows/{document['id']}", json=document).status_code in (200, 201)
    run_id = api.post("/v1/runs", {"workflowId": document["id"]}).json()["runId"]
    api.wait(run_id, "waiting-external")
    (asked,) = api.get(f"/v1/runs/{run_id}/interrupts").json()["interrupts"]
    path = f"/v1/interrupts/{asked['token']}"
    details = refused(api.post(path, {"resumeValue": {"orderId": "8"}}), 422, "validation_error")
    assert details["expected"] == ["orderId"] and api.run(run_id)["status"] == "waiting-external"
    assert api.post(path, {"resumeValue": {"orderId": "7"}}).status_code == 200
    assert api.wait(run_id)["status"] == "completed"
