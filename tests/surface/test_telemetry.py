"""What a configuration asks for: the access log of `forestay up`, and spans sent to a collector over HTTP."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from forestay.host.telemetry import open_tracing
from forestay.kernel import Problem, Telemetry
from tests.surface.test_lifecycle import first_line, up


def test_the_access_log_is_json_lines_on_standard_error(tmp_path: Path) -> None:
    process = up(tmp_path, FORESTAY_HTTP_ACCESS_LOG="true")
    try:
        said = first_line(process)["result"]
        httpx.get(f"{said['url']}/healthz", headers={"X-Request-Id": "seen-once"}, trust_env=False)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=30)
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith(b"{")]
    assert [(line["request"], line["route"], line["status"]) for line in lines] == [("seen-once", "health.live", 200)]


def test_spans_reach_a_collector_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        tracing = open_tracing(Telemetry(traces="otlp", service_name="harbour"))
        with tracing.span("moor the boat") as span, pytest.raises(Problem):
            span.set({"forestay.run.id": "run_1"})
            with tracing.span("row"):
                raise Problem("timeout", "a secret that somebody wrote")
        tracing.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    ((path, body),) = received
    assert path == "/v1/traces"
    assert b"moor the boat" in body and b"harbour" in body and b"run_1" in body
    assert b"error.type" in body and b"timeout" in body and b"a secret" not in body


def test_asking_for_spans_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Problem) as refused:
        open_tracing(Telemetry(traces="otlp"))
    assert refused.value.key == "config_invalid" and "opentelemetry-sdk" in refused.value.details["fix"]
