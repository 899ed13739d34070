"""Hostile envelopes: each is a Problem that says what is wrong, and costs next to nothing.

How long and how much memory is measured in benchmarks/envelope.py; here the memory is bounded, because that does not
depend on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from forestay.envelope import MAX_ENVELOPE_BYTES, conform, decode
from forestay.kernel import Problem
from tests.envelope import serving

VALID: dict[str, Any] = {
    "$schema": "https://lafs.dev/schemas/v1/envelope.schema.json",
    "_meta": {
        "specVersion": "1.8.0",
        "schemaVersion": "1.0.0",
        "timestamp": "2026-01-01T00:00:00Z",
        "operation": "x",
        "requestId": "abc",
        "transport": "http",
        "strict": True,
        "mvi": "full",
        "contextVersion": 0,
    },
    "success": True,
    "result": None,
}


def written(**changes: Any) -> bytes:
    return msgspec.json.encode({**VALID, **changes})


def many_warnings() -> bytes:
    warnings = [{"code": "", "message": ""}] * 100_000
    return written(_meta={**VALID["_meta"], "warnings": warnings})


def deep_details() -> bytes:
    head, tail = written(success=False, error={"details": "HERE"}).split(b'"HERE"')
    return head + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + tail


def repeated() -> bytes:
    return written()[:-1] + b',"success":true}'


def repeated_deep_inside() -> bytes:
    return written(result={"a": [{"b": "HERE"}]}).replace(b'"HERE"', b'1,"b":2')


def wrong_types() -> bytes:
    return msgspec.json.encode(dict.fromkeys(VALID, 7))


def unclosed() -> bytes:
    return b'{"$schema":' + b"[" * 500_000


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a hundred thousand warnings": (many_warnings, "payload_too_large"),
    "details a hundred thousand levels deep": (deep_details, "nesting_too_deep"),
    "brackets that never close": (unclosed, "nesting_too_deep"),
    "wrong types everywhere": (wrong_types, "schema_mismatch"),
    "__proto__ beside the members": (lambda: written(__proto__={"success": False}), "schema_mismatch"),
    "__proto__ in _meta": (lambda: written(_meta={**VALID["_meta"], "__proto__": {}}), "schema_mismatch"),
    "a member twice": (repeated, "invalid_json"),
    "a member twice, deep in the result": (repeated_deep_inside, "invalid_json"),
    "invalid UTF-8": (lambda: written(result={"a": "HERE"}).replace(b"HERE", b"\xff\xfe"), "invalid_json"),
    "invalid UTF-8 in a member that nobody knows": (
        lambda: written(_meta={**VALID["_meta"], "strict": False}, more="HERE").replace(b"HERE", b"\xff"),
        "invalid_json",
    ),
    "a lone surrogate": (lambda: written(result={"a": "HERE"}).replace(b"HERE", b"\\ud800"), "invalid_json"),
    "a number beyond all bounds": (lambda: written(result={"a": 1}).replace(b":1}", b":1e999}"), "schema_mismatch"),
    "a quarter of a gigabyte": (lambda: b" " * (256 << 20), "payload_too_large"),
    "a bare number": (lambda: b"1.5", "schema_mismatch"),
    "a bare list of numbers": (lambda: b"[1.5]", "schema_mismatch"),
    "nothing": (lambda: b"", "invalid_json"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_envelope_is_a_problem_and_cheap(name: str) -> None:
    make, key = HOSTILE[name]
    data = make()
    tracemalloc.start()
    try:
        with pytest.raises(Problem) as caught:
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.key == key
    assert caught.value.message and caught.value.as_lafs()["suggestedAction"]
    assert peak < 50 * 1024 * 1024
    report = conform(data)
    assert report.ok is False and [check.name for check in report.checks] == ["envelope_schema_valid"]


def test_the_innocent_envelope_beside_them_is_accepted() -> None:
    assert decode(written()).result is None
    assert decode(written(result={"__proto__": {"a": 1}})).result == {"__proto__": {"a": 1}}


@pytest.mark.parametrize("space", [b" ", b"\n", b"\t"])
def test_white_space_and_escapes_do_not_look_like_repeated_members(space: bytes) -> None:
    tricky = {'a"b': '":"', "c\\": '\\":', "é": ["\\\\", '"'], "": {}}
    pretty = msgspec.json.format(written(result=tricky), indent=2).replace(b"\n", space + b"\n")
    assert decode(pretty).result == tricky
    escaped = written(result={"k": "HERE"}).replace(b"HERE", b"\\u0022:\\u005c\\u0041")
    assert decode(escaped).result == {"k": '":\\A'}


def test_repeated_members_hide_neither_behind_escapes_nor_behind_white_space() -> None:
    for data in (
        written(result={"a": 1}).replace(b'"a":1', b'"a":1,"\\u0061":100'),
        written(result={"a": 1}).replace(b'"a":1', b'"a" : 1 , "a" : 1'),
        written(result={"a": 1}).replace(b'"a":1', b'"a":1e2,"a":"\\\\"'),
        written(_meta={**VALID["_meta"], "strict": False}, unknown=1).replace(b'"unknown":1', b'"u":1,"u":2'),
    ):
        with pytest.raises(Problem) as caught:
            decode(data)
        assert caught.value.key == "invalid_json" and "twice" in caught.value.message


def test_a_gigabyte_that_is_only_announced_is_refused_before_it_is_sent() -> None:
    """A raw socket: the header promises 1 GB, no byte of it follows, and the answer is there."""

    def talk(url: str) -> bytes:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(
                b"POST /operations/book.get HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 1073741824\r\nConnection: close\r\n\r\n"
            )
            received = b""
            while chunk := connection.recv(65536):
                received += chunk
            return received

    with serving.served(lambda url: serving.app(f"{url}/a2a")) as url:
        answer = talk(url)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 413 " in head.split(b"\r\n")[0]
    envelope = decode(body)
    assert envelope.success is False


def test_a_body_that_lies_about_its_length_is_cut_off_while_reading() -> None:
    from starlette.requests import Request

    from forestay.envelope.transports.http import read_json

    sent = 0

    async def receive() -> dict[str, Any]:
        nonlocal sent
        sent += 1
        return {"type": "http.request", "body": b"x" * 65536, "more_body": True}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(Problem) as caught:
        asyncio.run(read_json(request, limit=1 << 20))
    assert caught.value.key == "payload_too_large" and sent <= 18


def test_the_limit_is_the_callers_to_lower() -> None:
    assert len(written()) < MAX_ENVELOPE_BYTES
    with pytest.raises(Problem) as caught:
        decode(written(result={"a": "x" * 2000}), limit=1500)
    assert caught.value.key == "payload_too_large"
