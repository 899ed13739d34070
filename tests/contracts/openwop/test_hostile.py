"""Two thousand random and hostile requests: every one is answered with a 4xx in the envelope, or does what it says."""

from __future__ import annotations

import json
import random
import socket
import string
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.contracts.openwop.conftest import Api, refused

METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "PROPFIND", "X"]
BITS = [
    "..", ".", "%2e%2e", "%00", "%ff", "%F0%9F%92%A9",
    "' OR 1=1 --", "<script>", "${7*7}", "{{7*7}}", "a" * 300, "a" * 5000,
    "\u202e", "null", "-1", "0", "1e999", "9" * 40,
    "run_x", "__proto__", "constructor", ";rm -rf", "|id", "\r\nX: y", "\t",
    "run_x:fork", ":", "::fork", "runs:bulk-cancel", "*", "~", "@", "con", "é", "%", "%zz",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e308, 2**63, -(2**63),
    2**100, "", "x", "\x00", "\ud83d\ude00", "a" * 2000, [], {}, [[[]]],
    {"": 1}, {"$ref": "#/x"}, {"__proto__": {}}, ["x"] * 300, {"a": {"b": {"c": [1, {"d": None}]}}}, "../../etc/passwd",
]  # fmt: skip
FIELDS = [
    "workflowId", "inputs", "tenantId", "scopeId", "callbackUrl",
    "configurable", "tags", "metadata", "mode", "runIds", "reason",
    "fromSeq", "runOptionsOverlay", "resumeValue", "action", "url", "events",
    "cron", "timezone", "payload", "nodes", "id", "x",
]  # fmt: skip
PARAMETERS = [
    "streamMode",
    "bufferMs",
    "lastSequence",
    "timeout",
    "limit",
    "cursor",
    "status",
    "against",
    "expression",
    "tag",
]


def requests(count: int, paths: list[str], seed: int) -> list[tuple[str, str, bytes, dict[str, str]]]:
    chance = random.Random(seed)
    return [_request(chance, paths) for _ in range(count)]


def _request(chance: random.Random, paths: list[str]) -> tuple[str, str, bytes, dict[str, str]]:
    path = chance.choice(paths)
    while "{" in path:
        start, end = path.index("{"), path.index("}")
        path = path[:start] + quote(chance.choice(BITS), safe="%~.:@*'") + path[end + 1 :]
    if chance.random() < 0.1:
        path += chance.choice(["/", "//", "/..", "?", ";", ":fork", "%20", "/" + quote(chance.choice(BITS), safe="%")])
    values = [str(chance.choice([*BITS, *VALUES])).encode("utf-8", "replace") for _ in range(chance.randrange(3))]
    pairs = [f"{chance.choice(PARAMETERS)}={quote(value, safe='%')}" for value in values]
    # A long poll is hostile to the test only: keep it short.
    pairs += (
        ["timeout=1"]
        if path.endswith("poll") and chance.random() < 0.7 and not any("timeout" in p for p in pairs)
        else []
    )
    headers = {
        "Content-Type": chance.choice(["application/json"] * 6 + ["text/plain", "", "application/json; charset=utf-16"])
    }
    for name in ("Idempotency-Key", "X-Dedup", "X-Force-Engine-Version", "Last-Event-ID", "Accept", "X-Request-Id"):
        if chance.random() < 0.15:
            letters = string.ascii_letters + string.digits + " ;=/*\t\"',-"
            headers[name] = "".join(chance.choices(letters, k=chance.randrange(40))).strip()
    return (
        chance.choice(METHODS[:4] * 3 + METHODS),
        path + ("?" + "&".join(pairs) if pairs else ""),
        _body(chance),
        headers,
    )


def _body(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.15:
        return b""
    if kind < 0.3:
        return chance.choice(
            [b"{", b"[" * 500, b"\xff\xfe\x00", b'"', b"nul", b"{}{}", b"\x00", b"[" * 5000 + b"]" * 5000]
        )
    fields = {chance.choice(FIELDS): chance.choice(VALUES) for _ in range(chance.randrange(5))}
    return json.dumps(fields).encode()


def paths_of(api: Api) -> list[str]:
    return [
        *api.get("/v1/openapi.json").json()["paths"],
        "/v1/agents/{x}",
        "/v1/packs/{x}",
        "/{x}",
        "/v1/{x}",
        "/v2/runs",
    ]


def check(api: Api, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
    with api.http.stream(method, path, content=body, headers=headers) as answer:
        streaming = answer.headers.get("content-type", "").startswith("text/event-stream")
        if not streaming:
            answer.read()
    what = (method, path, body[:200], headers, answer.status_code)
    assert answer.status_code < 500 or answer.status_code == 501, (*what, answer.text)
    surface = answer.url.path.startswith(("/v1/", "/host/", "/.well-known/", "/healthz", "/readyz"))
    if answer.status_code < 400 or method == "HEAD" or not surface:
        return  # outside the surface a host may have pages for people
    found = answer.json()
    if answer.headers["content-type"] == "application/json" and "_meta" not in found:
        assert set(found) <= {"error", "message", "details"}, what
        assert found["error"] and found["message"], what
    assert "Traceback" not in answer.text and "site-packages" not in answer.text, what


@pytest.mark.parametrize("seed", range(4))
def test_500_hostile_requests_are_answered(api: Api, seed: int) -> None:
    for method, path, body, headers in requests(500, paths_of(api), seed):
        check(api, method, path, body, headers)
    assert api.get("/v1/runs").status_code == 200


def test_a_thousand_deep_path_is_not_found(api: Api) -> None:
    refused(api.get("/v1" + "/a" * 1000), 404, "not_found")


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        bytes(range(256)),
    ],
)
def test_bytes_that_are_no_http_do_not_hurt(api: Api, raw: bytes) -> None:
    parts = urlsplit(api.url)
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=10) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        said = b""
        while chunk := connection.recv(4096):
            said += chunk
    if said:
        assert said.startswith(b"HTTP/1.1 4") and b"application/json" in said
    assert api.get("/.well-known/openwop").status_code == 200
