"""HTTP through the dispatcher against real servers on loopback; every road to a private address is closed."""

from __future__ import annotations

import base64
import gzip
import ipaddress
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.extensions.dispatcher_world import World

from forestay.extensions.connectors.addresses import canonical_host, checked, is_public
from forestay.kernel import Problem


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/to/"):
            self.send_response(int(path.split("/")[2]))
            self.send_header("Location", base64.urlsafe_b64decode(path.split("/")[3]).decode())
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path == "/loop":
            self.send_response(302)
            self.send_header("Location", "/loop")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path == "/gzip":
            self._send(gzip.compress(b"x" * 1000), [("Content-Encoding", "gzip")])
        elif path == "/bomb":
            self._send(gzip.compress(b"\0" * 50_000_000), [("Content-Encoding", "gzip")])
        elif path == "/big":
            self._send(b"y" * 200_000)
        elif path == "/hang":
            threading.Event().wait(3)
        else:
            size = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(size) if size else b""
            seen = f"{self.command} {self.path} host={self.headers['Host']} auth={self.headers['Authorization']} "
            self._send(seen.encode() + body, [("X-One", "1"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])

    do_POST = do_PUT = do_DELETE = do_GET

    def _send(self, body: bytes, headers: list[tuple[str, str]] | None = None) -> None:
        self.send_response(200)
        for name, value in headers or []:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, grants=["http:127.0.0.1"])
    yield world
    world.close()


def to(url: str, status: int = 302) -> str:
    return f"/to/{status}/{base64.urlsafe_b64encode(url.encode()).decode()}"


def test_a_request_goes_out_and_comes_back(world: World, port: int) -> None:
    result = world.ok(
        "http",
        url=f"http://127.0.0.1:{port}/p?q=1",
        method="POST",
        body="hi",
        headers={"Authorization": "t", "Host": "x"},
    )
    assert result["status"] == 200 and result["headers"]["x-one"] == "1"
    assert result["body"] == f"POST /p?q=1 host=127.0.0.1:{port} auth=t hi"
    assert [value for name, value in result["headerList"] if name == "set-cookie"] == ["a=1", "b=2"]
    assert world.ok("http", url=f"http://127.0.0.1:{port}/gzip")["body"] == "x" * 1000


def test_streamed_answers_have_head_and_parts(world: World, port: int) -> None:
    results = world.streamed("http", url=f"http://127.0.0.1:{port}/big", stream=True)
    assert results[0].output["status"] == 200
    body = b"".join(base64.b64decode(item.output["base64"]) for item in results[1:-1])
    assert body == b"y" * 200_000 and results[-1].chunk is not None and results[-1].chunk.is_last


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0.0.0.0", "[::1]",
        "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
        "169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1",
        "100.100.100.200", "[ff02::1]", "224.0.0.1", "255.255.255.255", "240.0.0.1", "2852039166",
    ],
)  # fmt: skip
def test_private_addresses_are_closed_in_every_mode(tmp_path: Path, port: int, host: str) -> None:
    world = World(tmp_path, mode="permissive")
    error = world.refused("http", url=f"http://{host}:{port}/")
    assert (error.code, error.details["problem"]) == ("denied", "address_blocked"), error
    world.close()


def test_a_name_that_resolves_to_a_private_address_is_closed(tmp_path: Path, port: int) -> None:
    world = World(tmp_path, grants=["http"], resolver=lambda *_: ["93.184.216.34", "127.0.0.1"])
    assert world.refused("http", url=f"http://rebind.example:{port}/").details["problem"] == "address_blocked"
    world.close()


def test_a_rebinding_name_is_resolved_once(tmp_path: Path, port: int) -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    world = World(tmp_path, grants=["http", "http:127.0.0.1"], resolver=lambda *_: answers.pop(0))
    assert world.ok("http", url=f"http://name.example:{port}/")["status"] == 200
    assert len(answers) == 1
    world.close()


def test_redirects_are_checked_again(world: World, port: int) -> None:
    base = f"http://127.0.0.1:{port}"
    assert world.ok("http", url=base + to("/end"))["url"] == base + "/end"
    for target in (
        "http://169.254.169.254/latest/meta-data",
        "http://localhost/",
        "http://[::1]/",
        "http://evil.example/",
    ):
        assert world.refused("http", url=base + to(target)).code == "denied", target
    for target in ("file:///etc/passwd", "ftp://x/", "gopher://x/"):
        assert world.refused("http", url=base + to(target)).code == "invalid_request", target
    assert world.refused("http", url=base + "/loop").code == "io"
    assert world.ok("http", url=base + to("/end"), redirect="manual")["status"] == 302
    assert world.refused("http", url=base + to("/end"), redirect="error").code == "io"


def test_redirects_change_method_and_drop_credentials(tmp_path: Path, port: int) -> None:
    world = World(tmp_path, grants=["http:127.0.0.1", "http:localhost"])
    base = f"http://127.0.0.1:{port}"
    same = world.ok("http", url=base + to("/e", 307), method="POST", body="b", headers={"Authorization": "t"})
    assert same["body"].startswith("POST /e") and "auth=t" in same["body"] and same["body"].endswith("b")
    other = world.ok(
        "http",
        url=base + to(f"http://localhost:{port}/e", 303),
        method="POST",
        body="b",
        headers={"Authorization": "t"},
    )
    assert other["body"].startswith("GET /e") and "auth=None" in other["body"] and other["redirected"] is True
    world.close()


def test_hosts_outside_the_scope_are_refused(world: World, port: int) -> None:
    assert world.refused("http", url="http://example.com/").code == "denied"
    assert world.refused("http", url=f"http://127.0.0.1.example.com:{port}/").code == "denied"


def test_sizes_are_bounded(world: World, port: int) -> None:
    base = f"http://127.0.0.1:{port}"
    assert world.refused("http", url=base + "/big", max_bytes=1000).details["errno"] == "EFBIG"
    assert world.refused("http", url=base + "/bomb").details["problem"] == "payload_too_large"


def test_time_is_bounded(world: World, port: int) -> None:
    call = world.request("http", {"url": f"http://127.0.0.1:{port}/hang"}, timeout_ms=200)
    result = world.dispatcher.call_sync(call, "ext.test")
    assert result.error is not None and result.error.code == "timeout"


@pytest.mark.parametrize(
    "params",
    [
        {"url": "file:///etc/passwd"},
        {"url": "http://user:pass@127.0.0.1/"},
        {"url": "http://127.0.0.1/\r\nX: y"},
        {"url": "http://127.0.0.1:99999/"},
        {"url": 7},
        {"url": "http://127.0.0.1/", "method": "CONNECT"},
        {"url": "http://127.0.0.1/", "headers": {"A": "b\r\nEvil: 1"}},
        {"url": "http://127.0.0.1/", "headers": 7},
    ],
)
def test_malformed_requests_are_invalid(tmp_path: Path, port: int, params: dict[str, object]) -> None:
    world = World(tmp_path, grants=["http", "http:127.0.0.1"])
    if isinstance(params["url"], str) and params["url"] == "http://127.0.0.1/":
        params = {**params, "url": f"http://127.0.0.1:{port}/"}
    assert world.refused("http", **params).code == "invalid_request"
    world.close()


def test_a_closed_port_is_io(world: World) -> None:
    error = world.refused("http", url="http://127.0.0.1:1/")
    assert (error.code, error.details["errno"]) == ("io", "ECONNREFUSED")


@pytest.mark.parametrize("text", ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


def test_hosts_have_one_spelling() -> None:
    assert (
        canonical_host("2130706433") == canonical_host("0x7f.1") == canonical_host("[::ffff:127.0.0.1]") == "127.0.0.1"
    )
    assert canonical_host("Example.COM.") == canonical_host("example.com.]") == "example.com"
    assert canonical_host("\uff11\uff12\uff17.1") == "127.0.0.1"  # other widths are the same digits to a resolver


def test_one_bad_address_refuses_the_name() -> None:
    with pytest.raises(Problem, match="private or local"):
        checked("x.example", 80, lambda _: False, lambda *_: ["8.8.8.8", "10.0.0.1"])
    assert checked("x.example", 80, lambda _: False, lambda *_: ["8.8.8.8"]) == ["8.8.8.8"]
