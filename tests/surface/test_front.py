"""The outermost layer over a real host: ids, logs, metrics, traces and places for every surface (F1 to F4, F7)."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forestay.console import Console
from forestay.host import Options, Tracing
from forestay.host.telemetry import OtelTracing, open_tracing
from forestay.kernel import Config, Http, HttpLimits, Telemetry, read_traceparent
from forestay.surface.front import ACCESS_LOG, log_requests
from forestay.surface.hosting import Serving, serve
from tests.contracts.openwop.documents import DOCUMENTS

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
Story = Callable[[Serving, httpx.AsyncClient], Awaitable[None]]


def run(folder: Path, story: Story, *, tracing: Tracing | None = None, **limits: Any) -> None:
    async def whole() -> None:
        config = Config(http=Http(limits=HttpLimits(**limits)))
        options = Options(data=folder, config=config, tracing=tracing)
        async with asyncio.timeout(60), serve(options, console=Console) as serving:
            headers = {"Authorization": f"Bearer {serving.services.keys.lend()}"}
            async with httpx.AsyncClient(base_url=serving.url, headers=headers, trust_env=False, timeout=30) as http:
                await story(serving, http)

    asyncio.run(whole())


async def finished(http: httpx.AsyncClient, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    """Start a run and wait, by long poll, until it ended."""
    made = await http.post("/v1/runs", json=body, headers=headers)
    assert made.status_code == 201, made.text
    run_id, after = made.json()["runId"], -1
    while (found := (await http.get(f"/v1/runs/{run_id}")).json())["status"] not in ("completed", "failed"):
        page = (await http.get(f"/v1/runs/{run_id}/events/poll", params={"lastSequence": after, "timeout": 5})).json()
        after = max([after, *(event["sequence"] for event in page["events"])])
    run: dict[str, Any] = found
    return run


async def numbers(http: httpx.AsyncClient) -> dict[str, float]:
    """Every sample of /metrics as `name{label="value",…}`."""
    answer = await http.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


PLACES = ("/v1/runs", "/v1/nothing", "/host/v1/keys", "/crp/sessions", "/crp/nothing", "/", "/login", "/static/live.js")


def test_f1_a_plain_request_id_is_echoed_everywhere_and_another_is_replaced(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        for path in PLACES:
            kept = await http.get(path, headers={"X-Request-Id": "caller-7:x"})
            assert kept.headers.get_list("x-request-id") == ["caller-7:x"], path
            for odd in ("a b", "x" * 200, "<script>", "é", "-", ""):
                made = await http.get(path, headers={"X-Request-Id": odd.encode()})
                (own,) = made.headers.get_list("x-request-id")
                assert re.fullmatch(r"req_[A-Za-z0-9]+", own), (path, odd)

    run(tmp_path, story)


def test_f2_each_request_is_one_line_that_holds_no_secret(tmp_path: Path) -> None:
    lines = io.StringIO()
    log_requests(lines)
    try:

        async def story(serving: Serving, http: httpx.AsyncClient) -> None:
            await http.get("/v1/runs?x=secret-value", headers={"X-Request-Id": "line-1", "traceparent": TRACE})
            await http.get("/v1/interrupts/secret-token-of-an-interrupt")
            await http.get("/v1/interrupts/secret-token-of-an-interrupt/more", headers={"Cookie": "secret=cookie"})
            await http.post("/login", data={"key": "secret-key-of-a-person"})
            await http.get("/crp/health")
            await http.request("PATCH", "/v1/runs", headers={"Authorization": "Bearer secret-bearer"})

        run(tmp_path, story)
    finally:
        ACCESS_LOG.handlers.clear()
        ACCESS_LOG.setLevel(logging.NOTSET)
        ACCESS_LOG.propagate = True
    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert len(said) == 6
    assert "secret" not in lines.getvalue().lower()
    first = said[0]
    assert (first["request"], first["method"], first["route"], first["status"]) == ("line-1", "GET", "runs.list", 200)
    assert first["trace"] == "0af7651916cd43dd8448eb211c80319c" and first["tenant"] == "default"
    assert first["client"] == "127.0.0.1" and first["ms"] > 0 and first["key"]
    assert [line["route"] for line in said[1:]] == [
        "interrupts.inspect",
        "unmatched",
        "console.login",
        "crp.getHealth",
        "unmatched",
    ]


def test_metrics_say_what_the_host_did(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        await http.put("/v1/workflows/suite-noop", json=DOCUMENTS["noop"] | {"id": "suite-noop"})
        await finished(http, {"workflowId": "suite-noop"})
        await finished(http, {"workflowId": "forestay-ask", "inputs": {"question": "Use ls: what is here?"}})
        await http.get("/v1/nothing-at-all")
        session = (await http.post("/crp/sessions", json={"app_id": "numbers"})).json()["session_id"]
        await http.post(f"/crp/sessions/{session}/dispatch", json={"system_prompt": "Answer.", "task_input": "Why?"})
        found = await numbers(http)
        assert found["forestay_runs_started_total"] == 2
        assert found['forestay_runs_ended_total{status="completed"}'] == 2
        assert found['forestay_http_requests_total{code="201",method="POST",route="runs.create"}'] == 2
        assert found['forestay_http_requests_total{code="404",method="GET",route="unmatched"}'] == 1
        assert found["forestay_ledger_commit_seconds_count"] > 5
        assert found['forestay_ledger_records_total{family="run"}'] > 10
        assert found['forestay_model_calls_total{model="local",outcome="ok"}'] >= 2
        assert found['forestay_model_tokens_total{direction="input",model="local"}'] > 0
        assert found['crp_dispatches_total{outcome="complete"}'] >= 2
        assert found['forestay_host_calls_total{capability="read",outcome="ok"}'] >= 1
        assert found["forestay_runs_active"] >= 0 and found["forestay_http_requests_open"] == 1
        assert found["process_resident_memory_bytes"] > 10_000_000
        assert found["forestay_http_connections_open"] >= 1

    run(tmp_path, story)


def test_metrics_are_the_operators_and_no_caller_adds_a_label(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        async def status(**wish: Any) -> int:
            _, text = await serving.services.keys.create("k", **wish)
            answer = await http.get("/metrics", headers={"Authorization": f"Bearer {text}"})
            return answer.status_code

        assert await status(tenant="other") == 403
        assert await status(scopes=["runs:read"]) == 403
        assert await status(scopes=["metrics:read"]) == 200
        before = len(await numbers(http))
        for number in range(50):
            await http.request(f"M{number}", f"/v1/x{number}", headers={"X-Request-Id": f"request-{number}"})
            await http.get(f"/crp/y{number}")
            await http.get(f"/static/z{number}")
        assert len(await numbers(http)) - before < 60, "a handful of routes, not one for each request"

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (TRACE, TRACE),
        (TRACE.replace("00-", "cc-", 1) + "-what-comes-later", TRACE),
        (TRACE + "-more", None),
        (TRACE.upper(), None),
        (TRACE.replace("00-", "ff-", 1), None),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01", None),
        ("x", None),
        ("", None),
        (None, None),
    ],
)
def test_a_traceparent_is_read_as_the_recommendation_says(given: str | None, read: str | None) -> None:
    assert read_traceparent(given) == read


@pytest.mark.parametrize("given", [TRACE, TRACE + "\tX: y", "00-zz"], ids=["good", "injected", "malformed"])
def test_a_trace_goes_on_with_the_run_and_its_webhooks(tmp_path: Path, given: str) -> None:
    """The header is kept with the run and carried to its webhooks; a bad one is dropped, wherever it stands."""

    async def whole() -> None:
        heads: asyncio.Queue[bytes] = asyncio.Queue()

        async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.put_nowait(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(receive, "127.0.0.1", 0) as receiver, asyncio.timeout(60):
            port = receiver.sockets[0].getsockname()[1]
            options = Options(data=tmp_path, allow_egress=(f"127.0.0.1:{port}",))
            async with serve(options) as serving:
                key = {"Authorization": f"Bearer {serving.services.keys.lend()}"}
                async with httpx.AsyncClient(base_url=serving.url, headers=key, trust_env=False) as http:
                    hook = {"url": f"http://127.0.0.1:{port}/", "events": ["run.completed"]}
                    assert (await http.post("/v1/webhooks", json=hook)).status_code == 201
                    await http.put("/v1/workflows/suite-noop", json=DOCUMENTS["noop"] | {"id": "suite-noop"})
                    body = {"workflowId": "suite-noop"}
                    ended = await finished(http, body, traceparent=given)
                    first = await heads.get()
                    kept = await finished(http, body | {"metadata": {"traceparent": given.replace("\t", "\r\n")}})
                    second = await heads.get()
            assert ended.get("metadata", {}).get("traceparent") == (TRACE if given == TRACE else None)
            assert kept["metadata"]["traceparent"]
            for head in (first, second):
                assert (b"traceparent: " + TRACE.encode() in head) == (given == TRACE)
                assert b"X: y" not in head

    asyncio.run(whole())


def test_spans_have_the_names_of_generative_ai_and_one_trace(tmp_path: Path) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))

    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        body = {"workflowId": "forestay-ask", "inputs": {"question": "Use ls: what whispered thing is here?"}}
        await finished(http, body, traceparent=TRACE)

    run(tmp_path, story, tracing=OtelTracing(provider))
    spans = {span.name: span for span in kept.get_finished_spans()}
    request = next(span for span in kept.get_finished_spans() if span.attributes["http.route"] == "runs.create")
    assert format(request.context.trace_id, "032x") == "0af7651916cd43dd8448eb211c80319c"
    assert format(request.parent.span_id, "016x") == "b7ad6b7169203331"
    assert request.attributes["http.response.status_code"] == 201
    chat, agent, tool = spans["chat local"], spans["invoke_agent core.forestay.assistant"], spans["execute_tool ls"]
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.request.model"] == "local"
    assert chat.attributes["gen_ai.usage.input_tokens"] > 0
    assert chat.parent.span_id == tool.parent.span_id == agent.context.span_id
    assert agent.attributes["gen_ai.agent.id"] == "core.forestay.assistant"
    for span in kept.get_finished_spans():
        assert "whispered" not in str(dict(span.attributes)) + span.name, "no prompt and no answer in a span"


def test_without_being_asked_for_nothing_is_traced() -> None:
    assert not open_tracing(Telemetry()).active


async def opened(http: httpx.AsyncClient, path: str) -> tuple[int, Any]:
    """Open a stream and leave it open: its status, and what closes it."""
    request = http.build_request("GET", path)
    answer = await http.send(request, stream=True)
    return answer.status_code, answer


def test_f3_streams_have_a_limit_for_each_key_and_one_for_all(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        await http.put("/v1/workflows/suite-approval", json=DOCUMENTS["approval"])
        run_id = (await http.post("/v1/runs", json={"workflowId": "suite-approval"})).json()["runId"]
        _, text = await serving.services.keys.create("person")
        async with httpx.AsyncClient(base_url=serving.url, trust_env=False) as person:
            assert (await person.post("/login", data={"key": text})).status_code == 303
            streams = f"/v1/runs/{run_id}/events", f"/runs/{run_id}/live"
            for who, path in ((http, streams[0]), (person, streams[1])):  # the contract's stream, and the console's
                held = [await opened(who, path) for _ in range(2)]
                assert [status for status, _ in held] == [200, 200]
                refused = await who.get(path)
                assert refused.status_code == 429 and refused.headers["retry-after"], path
                if who is http:
                    assert refused.json()["error"] == "rate_limited" and refused.json()["details"]["limit"] == 2
                else:
                    assert "This key has too many streams open." in refused.text
                for _, answer in held[:1]:
                    await answer.aclose()
                async with asyncio.timeout(20):
                    while serving.services.load.streams % 2 == 0:
                        await asyncio.sleep(0.005)
                again = await opened(who, path)
                assert again[0] == 200, "a place that was given back can be taken"
            _, other = await serving.services.keys.create("another")
            others = {"Authorization": f"Bearer {other}"}
            last = await http.send(http.build_request("GET", streams[0], headers=others), stream=True)
            assert last.status_code == 200
            full = await http.get(streams[0], headers=others)
            assert full.status_code == 503 and full.headers["retry-after"] and full.json()["error"]
            assert (await http.get("/v1/runs")).status_code == 200
            assert (await numbers(http))["forestay_http_streams_open"] == 5

    run(tmp_path, story, streams_per_key=2, streams=5)


def test_f4_no_surface_takes_work_while_the_host_drains_or_is_full(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        _, text = await serving.services.keys.create("person")
        assert (await http.post("/login", data={"key": text})).status_code == 303
        for path, told in (("/crp/sessions", '"code"'), ("/", "<h1>"), ("/v1/runs", '"error"')):
            serving.services.load.draining = True
            answer = await http.get(path)
            serving.services.load.draining = False
            assert answer.status_code == 503 and answer.headers["retry-after"] == "5" and told in answer.text, path
        serving.services.load._most["requests"] = 0
        assert (await http.get("/crp/sessions")).status_code == 503

    run(tmp_path, story)


def test_f7_an_encoded_slash_leads_nowhere(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        for path in ("/v1/runs", "/host/v1/keys", "/metrics", "/crp/sessions", "/static/live.js"):
            assert (await http.get(path)).status_code == 200, path
            for slash in ("%2F", "%2f"):
                hidden = path[0] + path[1:].replace("/", slash)
                expected = 200 if hidden == path else 404
                assert (await http.get(hidden)).status_code == expected, hidden
        assert (await http.get("/v1/%72uns")).status_code == 200  # the same address, said otherwise

    run(tmp_path, story)


def test_the_mounted_sidecar_says_that_a_key_is_required(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        async with httpx.AsyncClient(base_url=serving.url, trust_env=False, timeout=30) as stranger:
            assert (await stranger.get("/crp/health")).json()["auth_required"] is True
            assert (await stranger.get("/crp/openapi.json")).json()["security"] == [{"key": []}]
            assert (await stranger.get("/crp/sessions")).status_code == 401

    run(tmp_path, story)
