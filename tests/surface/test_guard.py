"""The server's limits on real sockets: G1 to G8. Times are small by configuration; nothing here sleeps."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from forestay.host import Options
from forestay.kernel import Config, Http, HttpLimits
from forestay.surface.connection_limits import Guard, within_files
from forestay.surface.guard import _client
from forestay.surface.hosting import Serving, serve

PATIENCE = 20  # how long a test waits for something that must happen


def run(folder: Path, story: Callable[[Serving], Awaitable[None]], **limits: Any) -> None:
    async def whole() -> None:
        config = Config(http=Http(limits=HttpLimits(**limits)))
        async with asyncio.timeout(60), serve(Options(data=folder, config=config)) as serving:
            await story(serving)

    asyncio.run(whole())


class Raw:
    """A connection that says what it likes, in the order it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    async def hear(self) -> bytes:
        """Everything until the other side ends."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    async def head(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self._reader.readuntil(b"\r\n\r\n")

    def end(self) -> None:
        self._writer.close()


@asynccontextmanager
async def raw(serving: Serving) -> AsyncIterator[Raw]:
    parts = urlsplit(serving.url)
    connection = Raw(*await asyncio.open_connection(parts.hostname, parts.port))
    try:
        yield connection
    finally:
        connection.end()


def refusal(said: bytes, status: int, error: str) -> dict[str, Any]:
    """The body of a refusal that was said in full on a connection that ends."""
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), said[:200]
    assert b"connection: close" in head
    found: dict[str, Any] = json.loads(body)
    assert set(found) <= {"error", "message", "details"} and found["error"] == error, found
    return found


async def healthy(serving: Serving) -> None:
    async with httpx.AsyncClient(base_url=serving.url, trust_env=False, timeout=PATIENCE) as http:
        assert (await http.get("/healthz")).status_code == 200


async def until(fact: Callable[[], bool]) -> None:
    """Give the loop its turn until `fact` holds."""
    async with asyncio.timeout(PATIENCE):
        while not fact():
            await asyncio.sleep(0.005)


def test_g1_a_head_that_dribbles_is_cut_while_others_are_served(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as slow:
            slow.say(b"GET /healthz HTTP/1.1\r\n")
            heard = asyncio.create_task(slow.hear())
            served = 0
            while not heard.done():
                slow.say(b"x")  # one byte of a header that never ends
                await healthy(serving)
                served += 1
            assert served > 1
            refusal(await heard, 408, "service_unavailable")
        assert serving.guard.refused["headers_time"] == 1

    run(tmp_path, story, header_seconds=0.4)


def test_g1_hundreds_of_dribbling_connections_do_not_hold_the_host(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        parts = urlsplit(serving.url)
        writers = []
        for _ in range(300):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(b"POST /v1/runs HTTP/1.1\r\nX-A: b")
            writers.append(writer)
        await until(lambda: serving.guard.open + serving.guard.refused["headers_time"] >= 300)
        await healthy(serving)
        await until(lambda: serving.guard.refused["headers_time"] == 300)
        for writer in writers:
            writer.close()
        await until(lambda: serving.guard.open == 0)

    run(tmp_path, story, header_seconds=1.5)


def test_g1_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as silent:
            assert await silent.hear() == b""
        assert serving.guard.refused["idle"] == 1

    run(tmp_path, story, header_seconds=0.2)


def test_g1_the_second_request_of_a_connection_has_a_time_limit_too(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as slow:
            slow.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in await slow.head()
            slow.say(b"GET /healthz HTTP/1.1\r\nHos")
            assert b"HTTP/1.1 408 " in await slow.hear()

    run(tmp_path, story, header_seconds=0.3)


def test_keep_alive_ends(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as kept:
            kept.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            said = await kept.hear()
            assert said.startswith(b"HTTP/1.1 200 ") and said.count(b"HTTP/1.1") == 1

    run(tmp_path, story, keep_alive_seconds=0.2)


def test_g2_a_body_that_does_not_come_is_408(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        key = serving.services.keys.lend()
        async with raw(serving) as slow:
            head = f"POST /v1/runs HTTP/1.1\r\nHost: [::1]\r\nAuthorization: Bearer {key}\r\nContent-Length: 50\r\n\r\n"
            slow.say(head.encode() + b"{")
            refusal(await slow.hear(), 408, "service_unavailable")
        await until(lambda: serving.services.load.active == 0)
        await healthy(serving)

    run(tmp_path, story, body_seconds=0.3)


def test_g2_a_body_after_its_answer_ends_too(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as slow:  # 401 needs no body; the rest never comes
            slow.say(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
            said = await slow.hear()
            assert said.startswith(b"HTTP/1.1 401 ")
        await until(lambda: serving.guard.open == 0)

    run(tmp_path, story, body_seconds=0.3)


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"X-%d: y\r\n" % number for number in range(60)),
        b"X-Large: " + b"y" * 5000 + b"\r\n",
        b"Cookie: " + b"; ".join(b"a%d=b" % number for number in range(1000)) + b"\r\n",
        b"X: y\r\n" * 2000,
    ],
    ids=["lines", "value", "cookies", "both"],
)
def test_g3_a_head_beyond_its_limits_is_431(tmp_path: Path, head: bytes) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as large:
            large.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
            refusal(await large.hear(), 431, "validation_error")
        await healthy(serving)

    run(tmp_path, story, header_count=50, header_bytes=4096)


def test_g3_an_address_beyond_its_limit_is_431(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        for target in (b"/" + b"a" * 5000, b"/healthz?" + b"q" * 5000):
            async with raw(serving) as large:
                large.say(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
                refusal(await large.hear(), 431, "validation_error")

    run(tmp_path, story, header_bytes=4096)


def test_g3_a_header_without_end_is_not_held(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as endless:
            endless.say(b"GET /healthz HTTP/1.1\r\nX: ")
            heard = asyncio.create_task(endless.hear())
            while not heard.done():
                endless.say(b"y" * 1024)
                await asyncio.sleep(0)
            refusal(await heard, 431, "validation_error")

    run(tmp_path, story, header_bytes=4096, header_seconds=30)


@pytest.mark.parametrize("chunked", [False, True])
def test_g3_a_body_beyond_the_servers_limit_is_413(tmp_path: Path, chunked: bool) -> None:
    async def story(serving: Serving) -> None:
        key = serving.services.keys.lend()
        length = "Transfer-Encoding: chunked" if chunked else "Content-Length: 100000"
        async with raw(serving) as large:
            large.say(
                f"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n{length}\r\n\r\n".encode()
            )
            for _ in range(4 if chunked else 0):
                large.say(b"400\r\n" + b" " * 1024 + b"\r\n")
            refusal(await large.hear(), 413, "validation_error")
        await healthy(serving)

    run(tmp_path, story, body_bytes=2000)


@pytest.mark.parametrize(
    ("limit", "reason"), [("connections", "connections"), ("connections_per_client", "client_connections")]
)
def test_g4_beyond_the_limit_of_connections_the_answer_is_503(tmp_path: Path, limit: str, reason: str) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as first, raw(serving) as second:
            for held in (first, second):
                held.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b" 200 " in await held.head()
            async with raw(serving) as third:
                third.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                said = await third.hear()
                found = refusal(said, 503, "service_unavailable")
                assert b"retry-after: 1\r\n" in said and found["details"]["retryAfter"] == 1
                assert found["details"]["reason"] == reason
        await until(lambda: serving.guard.open == 0)
        await healthy(serving)

    run(tmp_path, story, **{limit: 2})


def test_g4_a_client_is_an_address_or_the_network_that_one_has_to_himself() -> None:
    assert _client("127.0.0.1") == "127.0.0.1"
    assert _client("2001:db8::1") == _client("2001:db8::ffff:1") != _client("2001:db8:0:1::1")
    assert _client("fe80::1%eth0") == _client("fe80::2")


def test_g4_more_connections_than_files_are_never_promised() -> None:
    assert within_files(HttpLimits(connections=100)).connections == 100
    assert 0 < within_files(HttpLimits(connections=10**9)).connections < 10**9
    guard = Guard(HttpLimits(connections=1))
    assert guard.enter("a") is None and guard.enter("b") is not None


def test_g5_a_client_that_does_not_read_loses_its_connection(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        parts = urlsplit(serving.url)
        _, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        heads = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200  # more than the sockets' buffers take
        writer.write(heads)
        await until(lambda: serving.guard.refused["unread"] == 1)
        await until(lambda: serving.guard.open == 0)
        writer.transport.abort()
        await healthy(serving)

    run(tmp_path, story, write_seconds=0.3)


def test_bytes_that_are_no_http_are_refused_in_the_envelope(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as odd:
            odd.say(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
            refusal(await odd.hear(), 400, "validation_error")

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("version", "headers"),
    [
        (b"HTTP/1.1", b""),
        (b"HTTP/1.1", b"Host: localhost\r\nHost: b\r\n"),
        (b"HTTP/1.1", b"Host: a b\r\n"),
        (b"HTTP/1.1", b"Host: a/b\r\n"),
        (b"HTTP/2.0", b"Host: localhost\r\n"),
        (b"HTTP/0.9", b"Host: localhost\r\n"),
        (b"HTTP/1.1", b"Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n"),
        (b"HTTP/1.1", b"Host: localhost\r\nTransfer-Encoding: identity\r\n"),
        (b"HTTP/1.0", b"Host: localhost\r\nTransfer-Encoding: chunked\r\n"),
        (b"HTTP/1.1", b"Host: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n"),
        (b"HTTP/1.1", b"Host: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n"),
        (b"HTTP/1.1", b"Host: localhost\r\nX: b\r\n folded\r\n"),
    ],
)
def test_g7_a_head_that_could_mean_two_things_is_refused(tmp_path: Path, version: bytes, headers: bytes) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as odd:
            body = b"2\r\n{}\r\n0\r\n\r\n" if b"chunked" in headers else b"{}" if b"Length" in headers else b""
            odd.say(b"GET /healthz %b\r\nConnection: close\r\n%b\r\n%b" % (version, headers, body))
            refusal(await odd.hear(), 400, "validation_error")

    run(tmp_path, story)


def test_g7_an_old_request_needs_no_host(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as old:
            old.say(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert (await old.hear()).startswith(b"HTTP/1.1 200 ")

    run(tmp_path, story)


UPGRADE = b"Host: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
NEXT = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_g7_a_body_is_a_body_whatever_protocol_was_asked_for(tmp_path: Path, chunked: bool, apart: bool) -> None:
    """Clients that hope for HTTP/2 begin so; a body that reads like a request must not become one."""

    async def story(serving: Serving) -> None:
        key = serving.services.keys.lend()
        framing = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: %d\r\n" % len(NEXT)
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(NEXT), NEXT) if chunked else NEXT
        head = b"POST /v1/runs HTTP/1.1\r\nAuthorization: Bearer %b\r\n%b%b\r\n" % (key.encode(), UPGRADE, framing)
        async with raw(serving) as hopeful:
            hopeful.say(head if apart else head + body)
            if apart:
                await until(lambda: serving.services.load.active == 1)
                hopeful.say(body)
            said = await hopeful.hear()
        found = refusal(said, 400, "validation_error")
        assert found["message"] == "This is not valid JSON."
        assert said.count(b"HTTP/1.1 ") == 1

    run(tmp_path, story)


def test_g7_what_follows_a_request_for_another_protocol_is_answered_too(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as hopeful:
            hopeful.say(b"GET /readyz HTTP/1.1\r\n" + UPGRADE + b"\r\n" + NEXT)
            assert (await hopeful.hear()).count(b"HTTP/1.1 200 ") == 2

    run(tmp_path, story)


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("path", "status"), [("/v1/workflows/big", 413), ("/v1/workflows/big/x", 401), ("/crp/facts", 401)]
)
def test_g8_a_client_that_is_still_sending_gets_its_answer(
    tmp_path: Path, path: str, status: int, chunked: bool, connection: str
) -> None:
    """A client that sends all it has before it listens: an answer that came with a reset would be lost."""

    def put(url: str, key: str) -> int:
        parts = urlsplit(url)
        client = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE)
        block = b"x" * 65_536
        headers = {"Authorization": f"Bearer {key}", "Connection": connection, "Content-Type": "application/json"}
        if not chunked:
            headers["Content-Length"] = str(len(block) * 260)
        try:
            client.request("PUT", path, body=iter([block] * 260), headers=headers, encode_chunked=chunked)
            return client.getresponse().status
        finally:
            client.close()

    async def story(serving: Serving) -> None:
        _, key = await serving.services.keys.create("big")
        answers = [await asyncio.to_thread(put, serving.url, key if status == 413 else "wrong") for _ in range(3)]
        assert answers == [status] * 3
        await until(lambda: serving.guard.lingering == 0 and serving.guard.open == 0)
        await healthy(serving)

    run(tmp_path, story)


def test_g6_a_refused_client_that_never_ends_is_let_go(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        async with raw(serving) as endless:
            endless.say(
                b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 90000000\r\n\r\n"
            )
            said = await endless.head()
            assert said.startswith(b"HTTP/1.1 401 ")
            with contextlib.suppress(ConnectionError):
                while serving.guard.lingering:
                    endless.say(b"x" * 1000)  # never silent for as long as silence takes
                    await healthy(serving)
        assert serving.guard.lingering == 0
        await healthy(serving)

    run(tmp_path, story, body_seconds=0.5)
