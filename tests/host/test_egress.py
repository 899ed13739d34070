"""Calls out (E1 to E4): what must not be reached is not reached."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from forestay.host.egress import Egress
from forestay.kernel import Problem
from forestay.runs import Caller, HttpRequest

CALLER = Caller(tenant="t", run_id="r", node_id="n", idempotency_key="k")


@asynccontextmanager
async def receiver(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A plain server on loopback that answers with given bytes."""
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def sender(*allow: str, **options: Any) -> AsyncIterator[Egress]:
    egress = Egress(allow, **options)
    try:
        yield egress
    finally:
        await egress.close()


BLOCKED = [
    "https://127.0.0.1/",
    "https://10.0.0.1/",
    "https://172.16.3.4/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://0.0.0.0/",
    "https://100.64.0.1/",
    "https://[::1]/",
    "https://[::]/",
    "https://[fe80::1]/",
    "https://[fc00::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[2002:7f00:1::]/",
    "https://224.0.0.1/",
    "https://localhost/",
    "https://LOCALHOST./",
    "https://a.localhost/",
    "https://metadata.google.internal/",
    "https://127.1/",
    "https://0x7f.1/",
    "https://2130706433/",
    "https://0177.0.0.1/",
    "https://0/",
    "https://[64:ff9b::7f00:1]/",
    "https://localhost.localdomain/",
]


@pytest.mark.parametrize("url", BLOCKED)
async def test_e1_addresses_inside_are_refused_at_registration_and_at_sending(url: str) -> None:
    async with sender() as egress:
        with pytest.raises(Problem) as caught:
            egress.check_url(url)
        assert caught.value.key == "address_blocked"
        with pytest.raises(Problem) as caught:
            await egress.send(HttpRequest(method="GET", url=url), CALLER)
        assert caught.value.key == "address_blocked"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "https://",
        "nonsense",
        "https://user:pw@example.com/",
        "https://a:99999/",
        "https://a:0/",
        "https://@example.com/",
        "https://[::1::]/",
        "https://[fe80::1%25eth0]/",
        "https://a\\@b/",
        "https://-a/",
        "https://ï.com/",
        "https://a b/",
        "https://a/\n",
    ],
)
async def test_e4_only_https_addresses_with_a_host(url: str) -> None:
    async with sender() as egress:
        with pytest.raises(Problem) as caught:
            egress.check_url(url)
        assert caught.value.row.http == 400


async def test_e4_plain_http_is_for_allowed_hosts() -> None:
    async with sender("inner.example:80") as egress:
        egress.check_url("http://inner.example/")
        with pytest.raises(Problem) as caught:
            egress.check_url("http://example.com/", "$.callbackUrl")
        assert (caught.value.key, caught.value.details["at"]) == ("address_blocked", "$.callbackUrl")


async def test_e2_a_name_that_means_an_inner_address_is_refused_when_it_is_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS that answers with a public and an inner address: all of them must be allowed."""

    async def resolve(*_: Any, **__: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 443)),
        ]

    async with sender() as egress:
        egress.check_url("https://rebound.example/")
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        with pytest.raises(Problem) as caught:
            await egress.send(HttpRequest(method="GET", url="https://rebound.example/"), CALLER)
        assert caught.value.key == "address_blocked"


async def test_an_allowed_address_is_reached_and_keeps_its_name() -> None:
    async with (
        receiver(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (port, seen),
        sender(f"127.0.0.1:{port}") as egress,
    ):
        url = f"http://127.0.0.1:{port}/path?x=1"
        found = await egress.send(
            HttpRequest(method="POST", url=url, body=b"{}", headers={"X-A": "1", "Host": "evil"}), CALLER
        )
        assert (found.status, found.body) == (200, b"ok")
        assert seen[0].startswith(b"POST /path?x=1 HTTP/1.1\r\n")
        assert f"Host: 127.0.0.1:{port}".encode() in seen[0]
        assert b"evil" not in seen[0]


async def test_e3_redirects_are_answers_and_upgrades_are_refused() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    async with receiver(redirect) as (port, seen), sender(f"127.0.0.1:{port}") as egress:
        url = f"http://127.0.0.1:{port}/"
        assert (await egress.send(HttpRequest(method="GET", url=url), CALLER)).status == 302
        assert len(seen) == 1
        with pytest.raises(Problem) as caught:
            await egress.send(HttpRequest(method="GET", url=url, headers={"Upgrade": "websocket"}), CALLER)
        assert caught.value.key == "address_blocked"


async def test_e4_bodies_are_bounded_and_failures_are_problems() -> None:
    big = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
    async with receiver(big) as (port, _), sender(f"127.0.0.1:{port}", "127.0.0.1:1") as egress:
        request = HttpRequest(method="GET", url=f"http://127.0.0.1:{port}/", max_response_bytes=1000)
        with pytest.raises(Problem) as caught:
            await egress.send(request, CALLER)
        assert caught.value.key == "payload_too_large"
        with pytest.raises(Problem) as caught:
            await egress.send(HttpRequest(method="GET", url="http://127.0.0.1:1/"), CALLER)
        assert caught.value.key == "upstream_failed"
