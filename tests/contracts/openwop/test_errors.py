"""Errors: one closed envelope, on every road (OpenWOP §1.2)."""

from __future__ import annotations

import gzip
import http.client
import json
from urllib.parse import urlsplit

import pytest

from tests.contracts.openwop.conftest import Api, refused

LAFS = "application/vnd.lafs.envelope+json"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"\xff\xfe{}", "application/json"),
        (b'{"workflowId": "a", "workflowId":', "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "application/json"),
    ],
)
def test_bad_json_is_400(api: Api, content: bytes, kind: str) -> None:
    refused(api.http.post("/v1/runs", content=content, headers={"Content-Type": kind}), 400, "validation_error")


def test_another_media_type_is_415(api: Api) -> None:
    answer = api.http.post("/v1/runs", content=b"a=b", headers={"Content-Type": "application/x-www-form-urlencoded"})
    refused(answer, 415, "validation_error")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "gzip, identity"])
def test_a_coded_body_is_415(api: Api, coding: str) -> None:
    body = json.dumps({"workflowId": api.workflow("noop")}).encode()
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    for content in (body, gzip.compress(body)):
        refused(api.http.post("/v1/runs", content=content, headers=headers), 415, "validation_error")
    headers["Content-Encoding"] = "identity"
    assert api.http.post("/v1/runs", content=body, headers=headers).status_code == 201


def test_a_body_beyond_the_limit_is_413(api: Api) -> None:
    refused(api.post("/v1/runs", {"workflowId": "x", "metadata": {"a": "x" * 2_000_000}}), 413, "validation_error")


def test_a_wrong_method_is_405_and_names_the_right_ones(api: Api) -> None:
    answer = api.http.delete("/v1/runs")
    details = refused(answer, 405, "validation_error")
    assert details["allow"] == ["GET", "HEAD", "POST"]
    assert answer.headers["allow"] == "GET, HEAD, POST"


def test_a_path_that_is_none_is_404(api: Api) -> None:
    for path in ("/v1", "/v1/", "/v1/runs/", "/v1/runs//events", "/v1/favicon.ico"):
        refused(api.get(path), 404, "not_found")


def test_the_same_problem_in_other_forms(api: Api) -> None:
    problem = api.get("/v1/runs/run_none", headers={"Accept": "application/problem+json"})
    assert problem.headers["content-type"] == "application/problem+json"
    assert problem.json()["status"] == problem.status_code == 404
    lafs = api.get("/v1/runs/run_none", headers={"Accept": LAFS})
    assert lafs.headers["content-type"] == LAFS
    assert lafs.json()["success"] is False and lafs.json()["error"]["code"] == "E_NOT_FOUND_RESOURCE"
    fine = api.get("/v1/runs", headers={"Accept": LAFS})
    assert fine.json()["success"] is True and "runs" in fine.json()["result"]


def test_every_answer_has_a_request_id(api: Api) -> None:
    assert api.get("/v1/runs", headers={"X-Request-Id": "mine-123"}).headers["x-request-id"] == "mine-123"
    first, second = (api.get("/v1/nowhere").headers["x-request-id"] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
@pytest.mark.parametrize("size", [5_000_000, 17_000_000])
def test_a_body_that_is_too_large_is_413_each_time(api: Api, size: int, connection: str) -> None:
    """Also for a client that sends all it has before it reads, on a connection that ends with the answer."""
    place = urlsplit(api.url)
    headers = {"Authorization": f"Bearer {api.keys['full']}", "Content-Type": "application/json"}
    for _ in range(3):
        client = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
        try:
            client.request("PUT", "/v1/workflows/big", b"x" * size, {**headers, "Connection": connection})
            answer = client.getresponse()
            assert answer.status == 413 and json.loads(answer.read())["error"] == "validation_error"
        finally:
            client.close()
