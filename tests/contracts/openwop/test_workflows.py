"""Workflow definitions over HTTP (OpenWOP §1.1, §1.6, W4)."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.contracts.openwop.conftest import Api, refused
from tests.contracts.openwop.documents import DOCUMENTS, node, workflow


def test_a_stored_definition_is_read_back(api: Api) -> None:
    name = api.workflow("configurable")
    found = api.get(f"/v1/workflows/{name}")
    assert found.status_code == 200
    assert found.json()["id"] == name
    assert found.json()["configurableSchema"] == DOCUMENTS["configurable"]["configurableSchema"]
    refused(api.get("/v1/workflows/there-is-none"), 404, "not_found")


def test_w4_putting_makes_revisions(api: Api) -> None:
    name = f"suite-{uuid.uuid4().hex[:12]}"
    first = api.http.put(f"/v1/workflows/{name}", json=workflow(name, node("a", "core.noop")))
    assert (first.status_code, first.json()["revision"]) == (201, 1)
    same = api.http.put(f"/v1/workflows/{name}", json=workflow(name, node("a", "core.noop")))
    assert (same.status_code, same.json()["revision"]) == (200, 1)
    changed = api.http.put(f"/v1/workflows/{name}", json=workflow(name, node("a", "core.noop"), node("b", "core.noop")))
    assert changed.json()["revision"] == 2
    assert len(api.get(f"/v1/workflows/{name}").json()["nodes"]) == 2
    assert len(api.get(f"/v1/workflows/{name}", params={"revision": 1}).json()["nodes"]) == 1
    refused(api.get(f"/v1/workflows/{name}", params={"revision": 9}), 404, "not_found")
    assert name in [item["workflowId"] for item in api.get("/v1/workflows").json()["workflows"]]
    refused(api.caller("other").get(f"/v1/workflows/{name}"), 404, "not_found")


@pytest.mark.parametrize(
    "document",
    [
        {**DOCUMENTS["noop"], "unknown": 1},
        {**DOCUMENTS["noop"], "nodes": []},
        workflow("suite-bad", node("a", "core.there.is.none")),
        workflow("suite-bad", node("a", "core.noop"), edges=[{"id": "e", "sourceNodeId": "a", "targetNodeId": "z"}]),
        workflow(
            "suite-bad",
            node("a", "core.noop"),
            node("b", "core.noop"),
            edges=[
                {"id": "e1", "sourceNodeId": "a", "targetNodeId": "b"},
                {"id": "e2", "sourceNodeId": "b", "targetNodeId": "a"},
            ],
        ),
    ],
)
def test_w4_a_bad_definition_is_refused_with_its_place(api: Api, document: dict[str, Any]) -> None:
    name = document.get("id", "suite-bad")
    details = refused(api.http.put(f"/v1/workflows/{name}", json=document), 400, "validation_error")
    assert details["errors"] and all(item["at"].startswith("$") for item in details["errors"])
    checked = api.post("/v1/workflows:check", document)
    assert checked.status_code == 200 and checked.json()["valid"] is False


def test_w4_the_id_of_path_and_document_agree(api: Api) -> None:
    refused(api.http.put("/v1/workflows/another-name", json=DOCUMENTS["noop"]), 400, "validation_error")


def test_nobody_puts_a_workflow_in_the_place_of_the_hosts_own(api: Api) -> None:
    """The gates of deployments believe what an evaluation's run says."""
    for own in (item["workflowId"] for item in api.get("/v1/workflows").json()["workflows"]):
        if own.startswith("forestay-"):
            before = api.get(f"/v1/workflows/{own}").json()
            put = api.http.put(f"/v1/workflows/{own}", json={**DOCUMENTS["noop"], "id": own})
            assert put.status_code == 403, own
            assert api.get(f"/v1/workflows/{own}").json() == before


def test_of_many_puts_at_the_same_moment_each_makes_its_revision(api: Api) -> None:
    name = f"suite-{uuid.uuid4().hex}"

    def put(index: int) -> httpx.Response:
        document = workflow(name, node("start", "core.noop"), version=f"1.0.{index}")
        return api.http.put(f"/v1/workflows/{name}", json=document)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(put, range(20)))
    assert [answer.status_code for answer in answers] == [201] * 20, [answer.text for answer in answers]
    assert sorted(answer.json()["revision"] for answer in answers) == list(range(1, 21))
    for answer in answers:  # and each revision is the document that was put
        made = answer.json()
        shown = api.get(f"/v1/workflows/{name}", params={"revision": made["revision"]}).json()
        assert shown["version"] == made["version"]


def test_a_put_may_ask_for_the_revision_that_it_changes(api: Api) -> None:
    name = f"suite-{uuid.uuid4().hex}"
    path = f"/v1/workflows/{name}"

    def put(version: str, **headers: str) -> httpx.Response:
        document = workflow(name, node("start", "core.noop"), version=version)
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return api.http.put(path, json=document, headers=named)

    refused(put("1.0.0", if_match="*"), 412, "conflict")  # there is none yet
    first = put("1.0.0", if_none_match="*")
    assert first.status_code == 201
    refused(put("1.0.1", if_none_match="*"), 412, "conflict")  # now there is one
    tag = api.get(path).headers["etag"]
    assert tag == first.headers["etag"]
    assert put("1.0.1", if_match=tag).status_code == 201
    details = refused(put("1.0.2", if_match=tag), 412, "conflict")  # somebody changed it meanwhile
    assert details["revision"] == 2 and api.get(path).json()["version"] == "1.0.1"
    latest = api.get(path).headers["etag"]
    assert latest != tag and details["etag"] == latest
    assert put("1.0.2", if_match=f'"other", {latest}').status_code == 201
    refused(put("1.0.3", if_match="no-tag"), 400, "validation_error")
    with ThreadPoolExecutor(10) as pool:
        tag = api.get(path).headers["etag"]
        answers = list(pool.map(lambda index: put(f"2.0.{index}", if_match=tag), range(10)))
    assert sorted(answer.status_code for answer in answers) == [201] + [412] * 9
    assert api.get(path, headers={"If-None-Match": api.get(path).headers["etag"]}).status_code == 304
