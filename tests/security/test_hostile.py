"""Two thousand random and hostile requests over every surface: each gets its answer, none a 5xx."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest

from forestay.envelope import decode as valid_envelope
from forestay.surface import Serving
from tests.contracts.openwop.test_hostile import BITS, FIELDS, METHODS, PARAMETERS, VALUES
from tests.security.world import run

SURFACES = {
    "openwop": lambda path: path.startswith("/v1/") or path in ("/healthz", "/readyz", "/metrics"),
    "lafs": lambda path: path.startswith(("/host/", "/_lafs/", "/forms/")),
    "crp": lambda path: path.startswith("/crp"),
    "a2a": lambda path: path.startswith(("/a2a", "/mcp", "/.well-known/")),
    "openai": lambda path: path.startswith("/openai/"),
    "anthropic": lambda path: path.startswith("/anthropic/"),
    "console": lambda path: True,
}
CRP_FIELDS = [
    "app_id",
    "text",
    "task_input",
    "system_prompt",
    "config",
    "tools",
    "fact_id",
    "state",
    "max_windows",
    "method",
]
HOST_FIELDS = [
    "extension",
    "effect",
    "capability",
    "scope",
    "expiresAt",
    "prefix",
    "objective",
    "version",
    "contextDelta",
]
HOST_PARAMETERS = ["stream", "start", "prefix", "after", "extension", "mode", "sinceVersion", "top_k", "query", "_mvi"]


def surface_of(path: str) -> str:
    return next(name for name, holds in SURFACES.items() if holds(path))


async def addresses(serving: Serving, http: httpx.AsyncClient) -> list[str]:
    """Everything that is served, and a few things that are not."""
    own = [item.path for item in serving.app.operations]
    beside = ["/{x}", "/{x}/{x}", "/v1/{x}"]
    return [
        *own,
        *beside,
        "/host/v1/{x}",
        "/_lafs/{x}",
        "/crp/{x}",
        "/a2a/{x}",
        "/mcp/{x}",
    ]


def made(chance: random.Random, paths: list[str]) -> tuple[str, str, bytes, dict[str, str]]:
    path = re.sub(r"\{[^}]+\}", lambda _: quote(chance.choice(BITS), safe="%~.:@*'"), chance.choice(paths))
    if chance.random() < 0.1:
        path += chance.choice(["/", "//", "/..", ";", "%20", "/%2e%2e/%2e%2e/etc/passwd", "%00", "/\\"])
    names = PARAMETERS + HOST_PARAMETERS
    pairs = [
        f"{chance.choice(names)}={quote(str(chance.choice([*BITS, *VALUES])).encode('utf-8', 'replace'), safe='%')}"
        for _ in range(chance.randrange(3))
    ]
    if path.endswith("poll"):
        pairs = [pair for pair in pairs if not pair.startswith("timeout")] + ["timeout=1"]
    body, kind = _body(chance)
    headers = {"Content-Type": kind}
    for name in ("Idempotency-Key", "Last-Event-ID", "Accept", "X-Request-Id", "traceparent", "A2A-Version", "Cookie"):
        if chance.random() < 0.1:
            letters = "abcXYZ019 ;=/*\"',-<>{}()"
            headers[name] = "".join(chance.choices(letters, k=chance.randrange(60))).strip()
    return chance.choice(METHODS[:4] * 3 + METHODS), path + ("?" + "&".join(pairs) if pairs else ""), body, headers


def _body(chance: random.Random) -> tuple[bytes, str]:
    """A body and what it is said to be."""
    kind = chance.random()
    json_type = chance.choice(["application/json"] * 5 + ["text/plain", "", "application/json; charset=utf-16"])
    if kind < 0.15:
        return b"", json_type
    if kind < 0.3:
        odd = [b"{", b"[" * 500, b"\xff\xfe\x00", b'"', b"nul", b"{}{}", b"[" * 5000 + b"]" * 5000, b"1" * 5000]
        return chance.choice([*odd, json.dumps({str(n): n for n in range(3000)}).encode()]), json_type
    if kind < 0.45:
        form = {chance.choice(["key", "csrf", "inputs", "value", "from_seq"]): str(chance.choice([*BITS, *VALUES]))}
        text = urlencode(form, errors="replace") * chance.choice([1, 1, 200])
        return text.encode(), "application/x-www-form-urlencoded"
    if kind < 0.5:
        part = b'--b\r\nContent-Disposition: form-data; name="key"\r\n\r\n\xff\r\n--b--\r\n'
        return chance.choice([part, part[:20], b"--b\r\n" * 500]), "multipart/form-data; boundary=b"
    fields = chance.choice([FIELDS, CRP_FIELDS, HOST_FIELDS])
    value = {chance.choice(fields): chance.choice(VALUES) for _ in range(chance.randrange(5))}
    if chance.random() < 0.2:
        value = {"jsonrpc": "2.0", "id": 1, "method": chance.choice(["SendMessage", "GetTask", "x"]), "params": value}
    return json.dumps(value).encode(), json_type


def check(answer: httpx.Response, what: Any) -> None:
    unread = answer.headers.get("connection") == "close" and '"reason":"http' in answer.text
    surface = "openwop" if unread else surface_of(answer.url.path)  # what is no HTTP asked nobody in particular
    assert answer.status_code < 500 or answer.status_code == 501, (what, surface, answer.text[:500])
    assert "Traceback" not in answer.text and "site-packages" not in answer.text, what
    assert answer.headers.get("x-request-id"), what
    if answer.status_code < 400 or answer.request.method == "HEAD":
        return
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if surface == "console" and kind == "text/html":
        assert "default-src 'none'" in answer.headers["content-security-policy"], what
        return
    if surface == "console" and not answer.content:
        return
    body = answer.json()
    if kind == "application/vnd.lafs.envelope+json" or (surface == "lafs" and kind == "application/json"):
        assert not valid_envelope(answer.content).success, what
    elif kind == "application/problem+json":
        assert body["status"] == answer.status_code and body["title"], what
    elif surface == "crp":
        assert {"code", "message"} <= set(body.get("error", {}) if "jsonrpc" in body else body), (what, body)
    elif surface == "openai":
        assert {"message", "type", "code"} <= set(body["error"]) and body["error"]["message"], (what, body)
    elif surface == "anthropic":
        assert body["type"] == "error" and {"message", "type"} <= set(body["error"]), (what, body)
    elif surface == "a2a" and kind == "application/json":
        assert "error" in body or not valid_envelope(answer.content).success, what
    else:
        assert set(body) <= {"error", "message", "details"} and body["error"] and body["message"], (what, body)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in range(1, 4))])
def test_500_hostile_requests_over_every_surface_get_their_answer(tmp_path: Path, seed: int) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        chance = random.Random(seed)
        paths = await addresses(serving, http)
        seen: set[str] = set()
        for _ in range(500):
            method, path, body, headers = what = made(chance, paths)
            async with http.stream(method, path, content=body, headers=headers) as answer:
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    await answer.aread()
                    check(answer, what)
                    seen.add(surface_of(answer.url.path))
        assert seen == set(SURFACES), "every surface was asked"
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/v1/runs")).status_code == 200

    run(tmp_path, story, filled=False)
