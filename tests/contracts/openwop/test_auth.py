"""Who may call (OpenWOP §1.4)."""

from __future__ import annotations

import pytest

from tests.contracts.openwop.conftest import Api, refused

PROTECTED = [
    ("GET", "/v1/workflows/suite-noop"),
    ("POST", "/v1/runs"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/runs/run_none"),
    ("GET", "/v1/runs/run_none/events"),
    ("GET", "/v1/runs/run_none/events/poll"),
    ("POST", "/v1/runs/run_none/cancel"),
    ("POST", "/v1/runs:bulk-cancel"),
    ("POST", "/v1/runs/run_none:fork"),
    ("POST", "/v1/runs/run_none:pause"),
    ("POST", "/v1/runs/run_none:resume"),
    ("POST", "/v1/runs/run_none/interrupts/gate"),
    ("GET", "/v1/runs/run_none/interrupts"),
    ("GET", "/v1/runs/run_none/artifacts/a"),
    ("GET", "/v1/runs/run_none/ancestry"),
    ("GET", "/v1/runs/run_none:diff?against=run_other"),
    ("GET", "/v1/runs/run_none/debug-bundle"),
    ("POST", "/v1/webhooks"),
    ("DELETE", "/v1/webhooks/wh_none"),
    ("GET", "/v1/nowhere"),
]


@pytest.mark.parametrize(("method", "path"), PROTECTED)
def test_401_comes_before_404(api: Api, method: str, path: str) -> None:
    answer = api.caller("").http.request(method, path)
    refused(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("header", ["Bearer", "Bearer wrong-key-that-nobody-has", "Basic dXNlcjpwdw==", "nonsense"])
def test_malformed_and_unknown_keys_are_401(api: Api, header: str) -> None:
    answer = api.caller("").get("/v1/runs/run_none", headers={"Authorization": header})
    refused(answer, 401, "unauthenticated")


def test_expired_and_revoked_keys_are_401(api: Api) -> None:
    refused(api.caller("expired").get("/v1/runs"), 401, "key_expired")
    refused(api.caller("revoked").get("/v1/runs"), 401, "key_revoked")


@pytest.mark.parametrize(("method", "path"), [item for item in PROTECTED if "nowhere" not in item[1]])
def test_a_missing_scope_is_403(api: Api, method: str, path: str) -> None:
    refused(api.caller("no_scopes").http.request(method, path), 403, "forbidden")


def test_a_scope_opens_its_operations_only(api: Api) -> None:
    run_id = api.start("noop")
    reader = api.caller("reader")
    assert reader.get(f"/v1/runs/{run_id}").status_code == 200
    refused(reader.post(f"/v1/runs/{run_id}/cancel"), 403, "forbidden")
    refused(reader.get(f"/v1/runs/{run_id}/interrupts"), 403, "forbidden")


@pytest.mark.parametrize(
    ("method", "suffix"),
    [
        ("GET", ""),
        ("GET", "/events"),
        ("GET", "/events/poll?timeout=1"),
        ("POST", "/cancel"),
        ("POST", ":pause"),
        ("POST", ":resume"),
        ("GET", "/interrupts"),
        ("GET", "/artifacts"),
        ("GET", "/ancestry"),
        ("GET", "/debug-bundle"),
        ("GET", "/query?expression=status"),
    ],
)
def test_a_run_of_another_tenant_is_not_found(api: Api, method: str, suffix: str) -> None:
    run_id = api.start("noop")
    refused(api.caller("other").http.request(method, f"/v1/runs/{run_id}{suffix}"), 404, "not_found")


def test_lists_show_the_own_tenant_only(api: Api) -> None:
    run_id = api.start("noop", tags=["tenant-check"])
    mine = [run["runId"] for run in api.get("/v1/runs?tag=tenant-check").json()["runs"]]
    theirs = api.caller("other").get("/v1/runs?tag=tenant-check").json()["runs"]
    assert run_id in mine
    assert theirs == []


def test_a_body_cannot_name_another_tenant(api: Api) -> None:
    body = {"workflowId": api.workflow("noop"), "tenantId": "somebody-else"}
    refused(api.post("/v1/runs", body), 403, "forbidden")


def test_the_owner_is_recorded(api: Api) -> None:
    owner = api.run(api.start("noop"))["owner"]
    assert set(owner) <= {"tenant", "workspace", "principal"}
    assert owner["tenant"]
    named = {"principal": "ada", "workspace": "harbour"}
    made = api.post("/host/v1/keys", {"name": "owner", **named})
    if made.status_code == 201:  # a host that makes keys as we do
        key = {"Authorization": f"Bearer {made.json()['result']['apiKey']}"}
        started = api.post("/v1/runs", {"workflowId": api.workflow("noop")}, headers=key).json()["runId"]
        assert api.run(started)["owner"] == {"tenant": owner["tenant"], **named}
