"""Bodies within limits, problems in each contract's words (H1 to H4)."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from forestay.kernel import TABLE, Problem
from forestay.surface.answers import Boundary, answer, handler, problem_answer, read_json
from forestay.surface.exchange import Refused
from forestay.surface.negotiation import LAFS, PROBLEM_JSON, form_of


class Pair(msgspec.Struct, forbid_unknown_fields=True):
    left: int
    right: str = ""


@handler("openwop")
async def echo(request: Request) -> Response:
    return answer(request, await read_json(request, Pair, 64), 201, {"X-Own": "yes"})


@handler("crp")
async def raises(request: Request) -> Response:
    raise Problem(request.query_params["key"], "What was wrong.", fix="Do that.")


@handler("lafs")
async def breaks(request: Request) -> Response:
    raise ZeroDivisionError("secret text of /home/somebody/file")


async def breaks_bare(request: Request) -> Response:
    raise ZeroDivisionError("secret text")


@handler("openwop")
async def refused(request: Request) -> Response:
    raise Refused


async def refused_bare(request: Request) -> Response:
    raise Refused


async def fails_late(request: Request) -> Response:
    return problem_answer(request, Problem(request.query_params["key"], "Wait."), "openwop")


def client() -> httpx.AsyncClient:
    routes = [
        Route("/echo", echo, methods=["POST"]),
        Route("/raises", raises),
        Route("/breaks", breaks),
        Route("/bare", breaks_bare),
        Route("/late", fails_late),
        Route("/refused", refused),
        Route("/refused-bare", refused_bare),
    ]
    app = Boundary(Router(routes), "openwop")
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://host")


async def test_a_good_body_comes_back_with_headers() -> None:
    async with client() as http:
        found = await http.post("/echo", json={"left": 1}, headers={"X-Request-Id": "abc-1"})
    assert (found.status_code, found.json(), found.headers["x-own"]) == (201, {"left": 1, "right": ""}, "yes")
    assert found.headers["x-request-id"] == "abc-1"
    assert found.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (b"{", {}, 400),
        (b'{"left": "one"}', {}, 400),
        (b'{"left": 1, "else": 2}', {}, 400),
        (b"[" * 60, {}, 400),
        (b"\xff\xfe", {}, 400),
        (b'{"left": 1}', {"content-type": "text/plain"}, 415),
        (b'{"left": 1}', {"content-type": "application/vnd.x+json; charset=utf-8"}, 201),
        (b" " * 65, {}, 413),
        (b'{"left": 1}', {"x-request-id": "no spaces allowed"}, 201),
    ],
)
async def test_h1_h2_bad_bodies_are_refused_in_the_envelope(body: bytes, headers: dict[str, str], status: int) -> None:
    async with client() as http:
        found = await http.post("/echo", content=body, headers={"content-type": "application/json", **headers})
    assert found.status_code == status
    if status >= 400:
        assert set(found.json()) <= {"error", "message", "details"}
        assert found.json()["error"] == "validation_error"
    assert " " not in found.headers["x-request-id"]


async def test_h1_a_body_without_a_length_is_refused_while_it_arrives() -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while sent < 1_000_000:
            sent += 32
            yield b" " * 32

    async with client() as http:
        found = await http.post("/echo", content=endless())
    assert found.status_code == 413
    # The in-memory transport hands chunks over as they are asked for: reading stopped near the limit.
    assert sent <= 128


@pytest.mark.parametrize("key", sorted(TABLE))
async def test_h2_every_row_of_the_table_projects_into_every_form(key: str) -> None:
    row = TABLE[key]
    async with client() as http:
        own = await http.get("/raises", params={"key": key})
        rfc = await http.get("/raises", params={"key": key}, headers={"Accept": PROBLEM_JSON})
        lafs = await http.get("/raises", params={"key": key}, headers={"Accept": LAFS})
        openwop = await http.get("/late", params={"key": key})
    assert {own.status_code, rfc.status_code, lafs.status_code, openwop.status_code} == {row.http}
    assert own.json()["code"] == row.crp
    assert rfc.headers["content-type"] == PROBLEM_JSON
    assert rfc.json()["status"] == row.http and rfc.json()["instance"] == rfc.headers["x-request-id"]
    assert lafs.headers["content-type"] == LAFS
    assert lafs.json()["success"] is False and lafs.json()["error"]["code"] == row.lafs
    assert openwop.json()["error"] == row.openwop
    if row.http >= 500:
        assert openwop.json()["details"]["correlationId"] == openwop.headers["x-request-id"]


async def test_h3_waiting_times_are_in_header_and_body() -> None:
    async with client() as http:
        busy = await http.get("/late", params={"key": "unavailable"})
        limited = await http.get("/late", params={"key": "rate_limited"})
    assert busy.headers["retry-after"] == str(busy.json()["details"]["retryAfter"]) == "1"
    assert limited.headers["retry-after"] == "1" and limited.json()["details"]["retryAfterMs"] == 1000


@pytest.mark.parametrize("path", ["/breaks", "/bare"])
async def test_h2_an_unexpected_error_keeps_its_text(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with client() as http:
        found = await http.get(path)
    assert found.status_code == 500
    assert "secret text" not in found.text
    reference = found.headers["x-request-id"]
    assert reference in found.text
    assert path == "/breaks" or found.json()["details"]["correlationId"] == reference
    assert reference in caplog.text


@pytest.mark.parametrize("path", ["/refused", "/refused-bare"])
async def test_h2_what_has_its_answer_from_elsewhere_is_no_error(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with client() as http:
        await http.get(path)
    assert caplog.text == ""


async def test_routing_refusals_are_in_the_envelope() -> None:
    async with client() as http:
        missing = await http.get("/nowhere")
        method = await http.delete("/echo")
    assert (missing.status_code, missing.json()["error"]) == (404, "not_found")
    assert (method.status_code, method.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("accept", "failed", "form"),
    [
        ("", True, "own"),
        ("*/*", True, "own"),
        ("text/html", True, "own"),
        (LAFS, False, "lafs"),
        (f"{LAFS};q=0.5, application/json", False, "own"),
        (f"application/json;q=0.5, {LAFS}", False, "lafs"),
        (f"{LAFS}, application/json", False, "own"),
        (PROBLEM_JSON, False, "own"),
        (f"{PROBLEM_JSON};q=nonsense", True, "own"),
        (f"application/json;q=0.9, {PROBLEM_JSON}", True, "problem"),
        (LAFS + "," * 2000, True, "own"),
    ],
)
def test_the_form_follows_accept(accept: str, failed: bool, form: str) -> None:
    assert form_of(accept, failed=failed) == form
