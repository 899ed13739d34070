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
    refused(api.caller("other").get(path), 404, "not_found")
    refused(api.caller("other").http.delete(path), 404, "not_found")
    assert api.http.delete(path).status_code == 204
    refused(api.http.delete(path), 404, "not_found")


def test_the_tenant_of_a_registration_is_the_callers(api: Api) -> None:
    refused(api.post("/v1/webhooks", {**BODY, "tenantId": "somebody-else"}), 403, "forbidden")
    refused(api.http.delete("/v1/webhooks/wh_x", params={"tenantId": "somebody-else"}), 403, "forbidden")


@pytest.mark.parametrize(
    "change",
    [
        {"events": []},
        {"events": ["not an event"]},
        {"events": None},
        {"url": "ftp://hooks.example.com/"},
        {"url": "https://"},
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
        "https://10.1.2.3/",
        "https://169.254.169.254/latest/",
        "https://[::1]/",
        "https://localhost/",
        "https://metadata.google.internal/",
        "http://hooks.example.com/",
    ],
)
def test_addresses_inside_and_plain_http_are_refused(api: Api, url: str) -> None:
    answer = api.post("/v1/webhooks", {**BODY, "url": url})
    assert answer.status_code in (400, 403)
    assert set(answer.json()) <= {"error", "message", "details"}
    started = api.post("/v1/runs", {"workflowId": api.workflow("noop"), "callbackUrl": url})
    assert started.status_code in (400, 403)


def test_rotation_gives_a_new_secret(api: Api) -> None:
    made = api.post("/v1/webhooks", BODY).json()
    path = f"/v1/webhooks/{made['webhookId']}"
    rotated = api.post(f"{path}:rotate").json()
    assert rotated["secret"] != made["secret"]
    assert api.get(path).json()["secretFingerprint"] == rotated["secretFingerprint"]
    assert api.get(f"{path}/deliveries").json() == {"deliveries": []}
    refused(api.post(f"{path}/deliveries/whd_none:retry"), 404, "not_found")
    api.http.delete(path)
