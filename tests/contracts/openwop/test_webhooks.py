"""Webhooks over HTTP (OpenWOP §1.1; delivery is proven where the receiver is ours, in tests/runs)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.openwop.conftest import Api, refused

BODY = {"url": "https://hooks.example.com/openwop", "events": ["run.completed", "approval.requested"]}


def test_registering_shows_the_secret_once(api: Api) -> None:
    answer = api.post("/v1/webhooks", BODY)
    assert answer.status_code == 201
    made = answer.json()
    assert {"webhookId", "secret", "secretFingerprint"} <= set(made)
    assert len(made["secret"]) >= 32 and len(made["secretFingerprint"]) == 8
    path = f"/v1/webhooks/{made['webhookId']}"
    seen = api.get(path)
    assert made["secret"] not in seen.text and seen.json()["secretFingerprint"] == made["secretFingerprint"]
    listed = api.get("/v1/webhooks")
    assert seen.json() in listed.json()["webhooks"] and made["secret"] not in listed.text
    refused(api.caller("other").get(path), 404, "subscription_not_found")
    refused(api.caller("other").http.delete(path), 404, "subscription_not_found")
    assert api.http.delete(path).status_code == 204
    for method, place in (("DELETE", path), ("GET", path), ("POST", f"{path}:rotate"), ("GET", f"{path}/deliveries")):
        refused(api.http.request(method, place), 404, "subscription_not_found")
    refused(api.post(f"{path}/deliveries/whd_none:retry"), 404, "subscription_not_found")


def test_the_tenant_of_a_registration_is_the_callers(api: Api) -> None:
    refused(api.post("/v1/webhooks", {**BODY, "tenantId": "somebody-else"}), 403, "forbidden")
    refused(api.http.delete("/v1/webhooks/wh_x", params={"tenantId": "somebody-else"}), 403, "forbidden")


@pytest.mark.parametrize(
    "change",
    [
        {"events": []},
        {"events": ["not an event"]},
        {"events": None},
        {"url": 5},
        {"secret": "chosen"},
        {"tags": [""]},
        {"tags": ["x" * 257]},
    ],
)
def test_bad_registrations_are_refused(api: Api, change: dict[str, Any]) -> None:
    refused(api.post("/v1/webhooks", {**BODY, **change}), 400, "validation_error")


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://127.1/",
        "https://127.0.1/",
        "https://0x7f.1/",
        "https://0x7F.0x0.0x0.0x1/",
        "https://0x7f000001/",
        "https://2130706433/",
        "https://0177.0.0.1/",
        "https://017700000001/",
        "https://0/",
        "https://0.0.0.0/",
        "https://127.1./",
        "https://127.0.0.1:8443/hook",
        "https://127.255.255.254/",
        "https://\uff11\uff12\uff17.0.0.1/",
        "https://127\u30020\u30020\u30021/",
        "https://%31%32%37.0.0.1/",
        "https://10.1.2.3/",
        "https://167838211/",
        "https://0xa9fea9fe/",
        "https://169.254.169.254/latest/",
        "https://100.64.0.1/",
        "https://[::1]/",
        "https://[0:0:0:0:0:0:0:1]/",
        "https://[::]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://[::127.0.0.1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[64:ff9b::127.0.0.1]/",
        "https://[64:ff9b:1::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://[fe80::1]/",
        "https://[fe80::1%25eth0]/",
        "https://[fd00::1]/",
        "https://localhost/",
        "https://LocalHost./",
        "https://localhost../",
        "https://a.localhost/",
        "https://localhost.localdomain/",
        "https://ip6-localhost/",
        "https://metadata.google.internal/",
        "https://user@127.0.0.1/",
        "http://hooks.example.com/",
        "ftp://hooks.example.com/",
        "https://",
        "//hooks.example.com/",
        "https://hooks.example.com:0/",
    ],
)
def test_w24_addresses_inside_in_any_spelling_and_plain_http_are_refused(api: Api, url: str) -> None:
    details = refused(api.post("/v1/webhooks", {**BODY, "url": url}), 400, "webhook_url_rejected")
    assert details["at"] == "$.url"
    run = {"workflowId": api.workflow("noop"), "callbackUrl": url}
    details = refused(api.post("/v1/runs", run), 400, "webhook_url_rejected")
    assert details["at"] == "$.callbackUrl"
    assert url not in [item["url"] for item in api.get("/v1/webhooks").json()["webhooks"]]


def test_rotation_gives_a_new_secret(api: Api) -> None:
    made = api.post("/v1/webhooks", BODY).json()
    path = f"/v1/webhooks/{made['webhookId']}"
    rotated = api.post(f"{path}:rotate").json()
    assert rotated["secret"] != made["secret"]
    assert api.get(path).json()["secretFingerprint"] == rotated["secretFingerprint"]
    assert api.get(f"{path}/deliveries").json() == {"deliveries": []}
    refused(api.post(f"{path}/deliveries/whd_none:retry"), 404, "not_found")
    api.http.delete(path)
