"""The conformance middleware and the compliance pipeline."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from forestay.envelope import Envelope, OutputChoice, encode, failure, success
from forestay.envelope.compliance import assert_compliant, comply, with_compliance
from forestay.envelope.conformance import Report
from forestay.envelope.transports.asgi import ConformanceMiddleware
from forestay.envelope.transports.http import operation_routes
from forestay.envelope.validate import decode
from forestay.kernel import Ids, ManualClock, Problem
from tests.envelope import serving


def application() -> Starlette:
    async def bare(_request: Request) -> Response:
        return JSONResponse({"ok": True}, status_code=201)

    async def text(_request: Request) -> Response:
        return PlainTextResponse("hello")

    async def chunks(_request: Request) -> Response:
        async def parts() -> Any:
            for part in (b'{"ok"', b":", b"true}"):
                yield part

        return StreamingResponse(parts(), media_type="application/json")

    routes = [Route("/bare", bare), Route("/text", text), Route("/chunks", chunks)]
    return Starlette(routes=[*routes, *operation_routes(serving.operations())])


async def ask(app: Any, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return await client.get(path)


async def test_answers_that_conform_go_through_and_are_marked(clock: ManualClock, ids: Ids) -> None:
    seen: list[tuple[str, Report]] = []
    app = ConformanceMiddleware(
        application(), clock=clock, ids=ids, on_report=lambda path, report: seen.append((path, report))
    )
    for path, status in (("/operations/book.get?id=b1", 200), ("/operations/book.get?id=x", 404)):
        response = await ask(app, path)
        assert response.status_code == status and response.headers["lafs-conformance"] == "ok"
        assert decode(response.content)
    assert [report.ok for _, report in seen] == [True, True]


@pytest.mark.parametrize("path", ["/bare", "/chunks"])
async def test_answers_that_do_not_conform_are_replaced_by_the_reason(path: str, clock: ManualClock, ids: Ids) -> None:
    response = await ask(ConformanceMiddleware(application(), clock=clock, ids=ids), path)
    told = decode(response.content)
    assert response.status_code == 500 and told.success is False
    assert response.headers["lafs-conformance"] == "failed; envelope_schema_valid"
    assert response.json()["error"]["details"]["failed"][0]["name"] == "envelope_schema_valid"


async def test_in_report_mode_they_pass_and_are_marked(clock: ManualClock, ids: Ids) -> None:
    response = await ask(ConformanceMiddleware(application(), clock=clock, ids=ids, mode="report"), "/bare")
    assert (response.status_code, response.json()) == (201, {"ok": True})
    assert response.headers["lafs-conformance"].startswith("failed")


async def test_other_media_types_are_left_alone(clock: ManualClock, ids: Ids) -> None:
    response = await ask(ConformanceMiddleware(application(), clock=clock, ids=ids), "/text")
    assert response.text == "hello" and "lafs-conformance" not in response.headers


def test_the_pipeline_stops_at_the_schema_and_goes_on_otherwise(clock: ManualClock, ids: Ids) -> None:
    assert [issue.stage for issue in comply(b"{}", flags=True).issues] == ["schema"]
    fine = success("op", None, clock=clock, ids=ids)
    human = OutputChoice(format="human", source="project")
    issues = comply(
        encode(msgspec.structs.replace(fine, page=None)), flags=True, output=human, require_json=True
    ).issues
    assert [issue.stage for issue in issues] == ["envelope", "format"]
    assert comply(encode(fine), flags=True, output=human).ok
    with pytest.raises(Problem) as caught:
        assert_compliant(b"{}")
    assert caught.value.details["issues"][0]["stage"] == "schema"


async def test_a_producer_with_compliance_hands_out_nothing_else(clock: ManualClock, ids: Ids) -> None:
    async def produce(broken: bool) -> Envelope:
        made = failure(Problem("timeout", "Slow."), "op", clock=clock, ids=ids)
        return msgspec.structs.replace(made, page=None) if broken else made

    checked = with_compliance(produce)
    assert (await checked(False)).success is False
    with pytest.raises(Problem):
        await checked(True)
