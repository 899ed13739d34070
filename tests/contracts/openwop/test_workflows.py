"""Workflow definitions over HTTP (OpenWOP §1.1, §1.6, W4)."""

from __future__ import annotations

import uuid
from typing import Any

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
