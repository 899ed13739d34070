"""Work that comes in from outside (RFC 0083): the queue and the signed webhooks of a host that says it has them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contracts.openwop.conftest import Api, refused
from tests.contracts.openwop.documents import node, variable, workflow

STATES = {"active", "paused", "failed", "dead-lettered"}
SHOWN = {"subscriptionId", "source", "state", "dedupEnabled", "retryPolicy", "webhookId", "secretFingerprint"}
CANARY = "CANARY-EVENT-51"
PATH = "/host/v1/trigger-subscriptions"
WORK = workflow("suite-order", node("n", "core.noop"), variables=[variable("order", "string", required=True)])


@pytest.fixture(autouse=True)
def _offered(api: Api, capabilities: dict[str, Any]) -> None:
    if not (capabilities.get("triggerBridge") or {}).get("supported"):
        pytest.skip("this host has no trigger bridge")
    assert api.http.put(f"/v1/workflows/{WORK['id']}", json=WORK).status_code in (200, 201)


@pytest.fixture
def made(api: Api, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A new subscription with its binding; a queue unless the test says otherwise."""
    source = getattr(request, "param", "queue")
    retry = {"maxAttempts": 2, "backoff": "none"}
    answer = api.post(PATH, {"source": source, "workflowId": WORK["id"], "retryPolicy": retry})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()["result"]
    yield {**found["subscription"], "binding": found["binding"]}
    api.http.delete(f"{PATH}/{found['subscription']['subscriptionId']}")


webhook = pytest.mark.parametrize("made", ["webhook"], indirect=True)


def settled(api: Api, delivery: dict[str, Any]) -> dict[str, Any]:
    """The delivery when it is delivered or dead."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found: dict[str, Any] = api.get(f"/host/v1/trigger-deliveries/{delivery['deliveryId']}").json()["result"]
        if found["state"] != "due":
            return found
        time.sleep(0.02)
    raise AssertionError(found)


def deliver(api: Api, made: dict[str, Any], event: str, inputs: dict[str, Any]) -> dict[str, Any]:
    answer = api.post(made["binding"]["path"], {"eventId": event, "inputs": inputs})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()["result"]
    return found


def signed(made: dict[str, Any], body: bytes, event: str | None = None, at: float | None = None) -> dict[str, str]:
    """The headers that a sender makes with the subscription's secret, by the Standard Webhooks scheme."""
    name, stamp = event or f"evt_{uuid.uuid4()}", str(int(at if at is not None else time.time()))
    key = base64.b64decode(made["binding"]["secret"].removeprefix("whsec_"))
    mac = hmac.new(key, f"{name}.{stamp}.".encode() + body, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(mac).decode()
    return {"webhook-id": name, "webhook-timestamp": stamp, "webhook-signature": signature}


def send(api: Api, made: dict[str, Any], body: bytes, headers: dict[str, str]) -> httpx.Response:
    """A request of somebody without a key."""
    headers = {"Content-Type": "application/json", **headers}
    return api.caller("").http.post(made["binding"]["path"], content=body, headers=headers)


def test_the_subscriptions_have_the_contracts_shape(api: Api, made: dict[str, Any]) -> None:
    listed = api.get("/v1/trigger-subscriptions").json()
    mine = next(item for item in listed if item["subscriptionId"] == made["subscriptionId"])
    assert mine == api.get(f"/v1/trigger-subscriptions/{made['subscriptionId']}").json()
    for item in listed:
        assert set(item) <= SHOWN
        assert item["state"] in STATES
    refused(api.get("/v1/trigger-subscriptions/sub_none"), 404, "not_found")
    other = api.caller("other")
    refused(other.get(f"/v1/trigger-subscriptions/{made['subscriptionId']}"), 404, "not_found")
    assert made["subscriptionId"] not in str(other.get("/v1/trigger-subscriptions").json())
    refused(api.caller("").get("/v1/trigger-subscriptions"), 401, "unauthenticated")


def test_what_discovery_says_is_what_subscriptions_do(api: Api, capabilities: dict[str, Any]) -> None:
    told = capabilities["triggerBridge"]
    assert set(told["subscriptionStates"]) <= STATES and told["dedup"] is True
    for source in told["sources"]:
        if source == "email":
            continue  # it needs the name of a mailbox, which its settings have
        when = {"cron": "0 0 29 2 *"} if source == "schedule" else {}
        answer = api.post(PATH, {"source": source, "workflowId": WORK["id"], **when})
        assert answer.status_code == 201, answer.text
        api.http.delete(f"{PATH}/{answer.json()['result']['subscription']['subscriptionId']}")
    for source in {"schedule", "email", "form"} - set(told["sources"]):
        assert api.post(PATH, {"source": source, "workflowId": WORK["id"]}).status_code in (400, 501)


def test_an_event_starts_one_run_that_names_its_delivery(api: Api, made: dict[str, Any]) -> None:
    event = f"order-{uuid.uuid4()} {CANARY}"
    first = settled(api, deliver(api, made, event, {"order": "7"}))
    assert (first["state"], first["attempts"]) == ("delivered", 1)
    again = deliver(api, made, event, {"order": "8"})
    assert (again["deliveryId"], again["runId"]) == (first["deliveryId"], first["runId"])
    run = api.wait(first["runId"])
    assert (run["status"], run["inputs"]) == ("completed", {"order": "7"})
    started, attempted = api.events(first["runId"])[:2]
    assert (started["type"], attempted["type"]) == ("run.started", "trigger.delivery.attempted")
    assert started["causationId"] == attempted["eventId"]
    assert set(attempted["payload"]) == {"subscriptionId", "dedupKey", "attempt", "outcome", "runId"}
    assert CANARY not in json.dumps(attempted)


def test_an_event_that_starts_nothing_is_a_dead_letter_that_can_be_driven_again(api: Api, made: dict[str, Any]) -> None:
    dead = settled(api, deliver(api, made, f"e-{uuid.uuid4()}", {}))
    assert (dead["state"], dead["attempts"], "runId" in dead) == ("dead", 2, False)
    assert dead["deliveryId"] in str(api.get("/host/v1/trigger-deliveries", params={"state": "dead"}).json())
    name = made["subscriptionId"]
    assert api.get(f"/v1/trigger-subscriptions/{name}").json()["state"] == "dead-lettered"
    refused_at = api.post(made["binding"]["path"], {"eventId": "next", "inputs": {"order": "1"}})
    assert refused_at.status_code == 409
    records = api.get("/host/v1/ledger/records", params={"stream": f"trigger/{name}"}).json()["result"]["records"]
    told = [item["payload"] for item in records if item["type"] == "trigger.subscription.state.changed"]
    assert (told[-1]["toState"], told[-1]["reason"]) == ("dead-lettered", "retry-exhausted")
    assert set(told[-1]) == {"subscriptionId", "source", "fromState", "toState", "reason"}
    assert api.post(f"/host/v1/trigger-deliveries/{dead['deliveryId']}:redrive").status_code == 202
    assert settled(api, dead)["state"] == "dead"  # nothing has changed about it
    assert api.caller("other").post(f"/host/v1/trigger-deliveries/{dead['deliveryId']}:redrive").status_code == 404


def test_a_paused_subscription_takes_nothing(api: Api, made: dict[str, Any]) -> None:
    path = f"{PATH}/{made['subscriptionId']}"
    assert api.post(f"{path}:pause").json()["result"]["state"] == "paused"
    assert api.post(made["binding"]["path"], {"eventId": "e", "inputs": {"order": "1"}}).status_code == 409
    assert api.post(f"{path}:pause").status_code == 409
    assert api.post(f"{path}:resume").json()["result"]["state"] == "active"
    assert settled(api, deliver(api, made, "e", {"order": "1"}))["state"] == "delivered"


@webhook
def test_a_signed_webhook_starts_a_run(api: Api, made: dict[str, Any]) -> None:
    body = json.dumps({"order": "9"}).encode()
    headers = signed(made, body)
    answer = send(api, made, body, headers)
    assert answer.status_code == 202, answer.text
    found = settled(api, answer.json()["result"])
    assert api.wait(found["runId"])["inputs"] == {"order": "9"}
    assert send(api, made, body, headers).json()["result"]["runId"] == found["runId"]
    shown = api.get(f"/v1/trigger-subscriptions/{made['subscriptionId']}").text
    assert made["binding"]["secret"] not in shown and made["secretFingerprint"] in shown
    assert made["binding"]["secret"] not in api.get(PATH).text


@webhook
def test_a_forged_webhook_gets_nothing(api: Api, made: dict[str, Any]) -> None:
    body = b'{"order": "9"}'
    good = signed(made, body)
    elsewhere = {**made, "binding": {**made["binding"], "path": f"{PATH}/sub_none:ingest"}}
    tries = [
        send(api, made, body, {}),
        send(api, made, body + b" ", good),
        send(api, made, body, {**good, "webhook-id": "another"}),
        send(api, made, body, {**good, "webhook-signature": "v1,AAAA"}),
        send(api, elsewhere, body, good),
    ]
    assert {answer.status_code for answer in tries} == {403}
    assert len({answer.json()["error"]["message"] for answer in tries}) == 1  # whether it is there is not said
    assert send(api, made, body, signed(made, body, at=time.time() - 3600)).status_code == 403
    assert send(api, made, b"[1]", signed(made, b"[1]")).status_code == 400
    assert api.post(f"{PATH}/{made['subscriptionId']}:deliver", {"eventId": "e"}).status_code == 409
    found = api.get("/host/v1/trigger-deliveries", params={"limit": 200}).json()["result"]["deliveries"]
    assert made["subscriptionId"] not in {item["subscriptionId"] for item in found}
    assert api.get(f"/v1/trigger-subscriptions/{made['subscriptionId']}").json()["state"] == "active"


def test_a_subscription_needs_the_scope_and_a_workflow_that_is_there(api: Api) -> None:
    wanted = {"source": "queue", "workflowId": WORK["id"]}
    assert api.caller("reader").post(PATH, wanted).status_code == 403
    assert api.caller("other").post(PATH, wanted).status_code == 404
    assert api.post(PATH, {**wanted, "workflowId": "there-is-none"}).status_code == 404
    assert api.post(PATH, {**wanted, "rosterId": "host:nobody"}).status_code == 404


@pytest.mark.parametrize("scenario", ["dedup", "deliver", "exhaust"])
def test_the_seam_drives_the_queue(api: Api, scenario: str) -> None:
    answer = api.post("/v1/host/sample/trigger-bridge/deliver", {"scenario": scenario, "source": "queue"})
    if answer.status_code == 404:
        pytest.skip("this host was started without its seams")
    found = answer.json()
    assert answer.status_code == 200, answer.text
    if scenario == "exhaust":
        assert (found["outcome"], found["attempts"], "runId" in found) == ("dead-lettered", 2, False)
        return
    assert (found["outcome"], found["deliveredCount"]) == ("delivered", 1)
    events = api.events(found["deliveryRunId"])
    attempted = [item for item in events if item["type"] == "trigger.delivery.attempted"]
    assert [item["payload"]["outcome"] for item in attempted] == ["delivered"]
    assert events[0]["causationId"] == attempted[0]["eventId"]


def test_a_work_item_is_attributed_to_its_member_and_its_subscription(api: Api) -> None:
    answer = api.post("/v1/host/sample/roster/fire", {"asWorkItem": True})
    if answer.status_code == 404:
        pytest.skip("this host was started without its seams")
    found = answer.json()
    initiated = next(item for item in api.events(found["runId"]) if item["type"] == "roster.run.initiated")
    assert initiated["sequence"] == 1
    assert initiated["payload"]["triggerSubscriptionId"] == found["triggerSubscriptionId"]
    assert initiated["payload"]["triggerSource"] == "queue"


form = pytest.mark.parametrize("made", ["form"], indirect=True)


def page_of(api: Api, made: dict[str, Any]) -> tuple[httpx.Response, str]:
    """The form as a stranger sees it, and the token of that page."""
    shown = api.caller("").get(made["binding"]["path"])
    token = re.search(r'name="forestay.page" value="([^"]+)"', shown.text)
    return shown, token[1] if token else ""


def filled(api: Api, made: dict[str, Any], **fields: str) -> httpx.Response:
    return api.caller("").http.post(made["binding"]["path"], data={k.replace("_", "."): v for k, v in fields.items()})


@form
def test_a_form_that_a_stranger_fills_in_starts_one_run(api: Api, made: dict[str, Any]) -> None:
    shown, token = page_of(api, made)
    assert shown.status_code == 200 and 'name="order"' in shown.text
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    sent = [filled(api, made, order="seven <boats>", forestay_page=token) for _ in range(2)]
    assert [answer.status_code for answer in sent] == [202, 202]
    (name,) = {re.search("dlv_[a-z0-9]+", answer.text)[0] for answer in sent}  # type: ignore[index]
    run = api.wait(settled(api, {"deliveryId": name})["runId"])
    assert (run["status"], run["inputs"]) == ("completed", {"order": "seven <boats>"})


@form
def test_a_form_takes_nothing_that_its_page_did_not_send(api: Api, made: dict[str, Any]) -> None:
    _, token = page_of(api, made)
    before = len(api.get("/host/v1/trigger-deliveries").json()["result"]["deliveries"])
    for forged in ("", "x", token[:-1], f"0{token[1:]}"):
        assert filled(api, made, order="x", forestay_page=forged).status_code == 403
    missing = filled(api, made, forestay_page=token)
    assert missing.status_code == 400 and "please fill this in" in missing.text
    assert len(api.get("/host/v1/trigger-deliveries").json()["result"]["deliveries"]) == before
    script = "</textarea><script>alert(1)</script>"
    again = filled(api, made, order=script, forestay_page="forged")
    assert "<script" not in again.text and "&lt;script&gt;" in again.text
    api.post(f"{PATH}/{made['subscriptionId']}:pause")
    assert page_of(api, made)[0].status_code == 404, "a form that rests is not there"
    assert api.caller("").get("/forms/sub_none").status_code == 404


def test_a_queue_and_a_webhook_have_no_page(api: Api, made: dict[str, Any]) -> None:
    assert api.caller("").get(f"/forms/{made['subscriptionId']}").status_code == 404
