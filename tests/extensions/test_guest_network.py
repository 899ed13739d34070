"""undici, node:dns and the address helpers of node:net: over the http connector, under its policy, without sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.extensions.dispatcher_world import World
from tests.extensions.guest_run import run

UNDICI = 'const undici = find("pi:web/undici");'


class Echo(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("location", "/there")
        else:
            self.send_response(200 if "missing" not in self.path else 404)
        self.send_header("x-agent", self.headers.get("user-agent") or "none")
        self.send_header("x-type", self.headers.get("content-type") or "none")
        self.send_header("set-cookie", "a=1")
        self.send_header("set-cookie", "b=2")
        text = f'{{"method": "{self.command}", "path": "{self.path}", "body": "{body.decode()[:40]}"}}'.encode()
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = _answer


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, mode="permissive", grants=["http:127.0.0.1"])
    yield world
    world.close()


def test_request_gives_status_headers_and_a_body_to_read_once(world: World, address: str) -> None:
    body = f"""{UNDICI}
      const {{ statusCode, headers, body }} = await undici.request("{address}/a", {{ query: {{ q: "1 2" }}, headers: {{ "User-Agent": "me" }} }});
      const said = await body.json();
      return [statusCode, headers["x-agent"], headers["set-cookie"], said, body.bodyUsed, await caught(() => body.text())];
    """
    status, agent, cookies, said, used, again = run(world, body)
    assert (status, agent, cookies, used) == (200, "me", ["a=1", "b=2"], True)
    assert said == {"method": "GET", "path": "/a?q=1+2", "body": ""}
    assert again["name"] == "TypeError"


@pytest.mark.parametrize(
    ("given", "method", "kind", "sent"),
    [
        ("'text'", "POST", "none", "text"),
        ("Buffer.from('bytes')", "POST", "none", "bytes"),
        ("(async function* () { yield Buffer.from('a'); yield Buffer.from('b'); })()", "POST", "none", "ab"),
    ],
)
def test_request_sends_what_a_body_can_be(
    world: World, address: str, given: str, method: str, kind: str, sent: str
) -> None:
    body = f"""{UNDICI}
      const {{ headers, body }} = await undici.request(new URL("{address}/b"), {{ method: "{method}", body: {given} }});
      return [headers["x-type"], await body.json()];
    """
    assert run(world, body) == [kind, {"method": method, "path": "/b", "body": sent}]


def test_request_follows_no_redirect_and_fetch_does(world: World, address: str) -> None:
    body = f"""{UNDICI}
      const asked = await undici.request("{address}/moved");
      await asked.body.dump();
      const fetched = await undici.fetch("{address}/moved");
      return [asked.statusCode, asked.headers.location, fetched.status, fetched.redirected, (await fetched.json()).path];
    """
    assert run(world, body) == [302, "/there", 200, True, "/there"]


def test_clients_streams_and_handlers_take_the_same_road(world: World, address: str) -> None:
    body = f"""{UNDICI}
      const {{ Writable }} = require("stream");
      const client = new undici.Client("{address}", {{ headersTimeout: 1000, pipelining: 1 }});
      const one = await client.request({{ path: "/one", method: "GET" }});
      const parts = [];
      await undici.stream("{address}/two", {{ method: "GET", opaque: 7 }}, ({{ statusCode, opaque }}) => new Writable({{ write(chunk, _e, next) {{ parts.push(statusCode, opaque, JSON.parse(String(chunk)).path); next(); }} }}));
      const seen = [];
      await new Promise((resolve) => new undici.Agent().dispatch({{ origin: "{address}", path: "/three", method: "GET" }}, {{
        onConnect() {{ seen.push("connect"); }}, onHeaders(status) {{ seen.push(status); return true; }}, onData(chunk) {{ seen.push(JSON.parse(String(chunk)).path); return true; }},
        onComplete() {{ seen.push("complete"); resolve(); }}, onError: resolve,
      }}));
      const path = (await one.body.json()).path;
      await client.close();
      return [path, parts, seen, (await caught(() => client.request({{ path: "/", method: "GET" }}))).code];
    """
    assert run(world, body) == ["/one", [200, 7, "/two"], ["connect", 200, "/three", "complete"], "UND_ERR_CLOSED"]


@pytest.mark.parametrize(
    "made",
    [
        "new undici.Agent({ connect: { ca: 'x' } })",
        "new undici.Agent({ connect: { rejectUnauthorized: false } })",
        "new undici.Agent({ connect: (options, done) => done(null, {}) })",
        "new undici.Agent({ factory: () => null })",
        "new undici.Client(base, { socketPath: '/run/x.sock' })",
        "new undici.ProxyAgent('http://proxy.example:3128')",
        "new undici.EnvHttpProxyAgent({ httpsProxy: 'http://proxy.example' })",
        "new undici.Agent().compose((dispatch) => dispatch)",
        "new (class extends undici.Agent { dispatch() { return true; } })()",
        "{ dispatch() {} }",
    ],
)
def test_a_connection_of_the_extensions_own_making_is_refused_when_it_is_used(
    world: World, address: str, made: str
) -> None:
    body = f"""{UNDICI}
      const base = "{address}";
      const dispatcher = {made};
      const ways = [() => undici.fetch(base, {{ dispatcher }}), () => fetch(base, {{ dispatcher }}), () => undici.request(base, {{ dispatcher }}),
        () => {{ undici.setGlobalDispatcher(dispatcher); return fetch(base); }}];
      const codes = [];
      for (const way of ways) codes.push((await caught(way)).code);
      return codes;
    """
    assert run(world, body) == ["UND_ERR_NOT_SUPPORTED"] * 4


def test_what_only_tunes_a_connection_is_accepted(world: World, address: str) -> None:
    body = f"""{UNDICI}
      const agents = [new undici.Agent({{ keepAliveTimeout: 1, maxHeaderSize: 1 << 17, connections: 2, connect: {{ timeout: 5 }} }}), new undici.EnvHttpProxyAgent(), new undici.Pool("{address}")];
      const found = [];
      for (const dispatcher of agents) found.push((await undici.fetch("{address}/x", {{ dispatcher }})).status);
      undici.setGlobalDispatcher(agents[0]);
      return [...found, undici.getGlobalDispatcher() === agents[0], undici.MockAgent === undefined, undici.fetch === fetch, (await caught(() => undici.connect("{address}"))).code];
    """
    assert run(world, body) == [200, 200, 200, True, True, True, "UND_ERR_NOT_SUPPORTED"]


def test_undici_goes_no_further_than_policy(tmp_path: Path, address: str) -> None:
    world = World(tmp_path, mode="permissive")
    try:
        found = run(
            world,
            f'{UNDICI} return [await caught(() => undici.request("{address}")), await caught(() => undici.fetch("{address}"))]',
        )
        assert [item["hostcall"] for item in found] == ["denied", "denied"]
    finally:
        world.close()


def test_an_abort_and_a_timeout_end_a_request(world: World, address: str) -> None:
    body = f"""{UNDICI}
      const control = new AbortController();
      control.abort(new Error("enough"));
      return [await caught(() => undici.request("{address}", {{ signal: control.signal }})), new undici.errors.BodyTimeoutError().code, new undici.errors.SocketError("s") instanceof undici.errors.UndiciError];
    """
    aborted, code, kin = run(world, body)
    assert (aborted["message"], code, kin) == ("enough", "UND_ERR_BODY_TIMEOUT", True)


def test_names_are_looked_up_by_the_host_and_only_where_they_may_be_asked(tmp_path: Path) -> None:
    names = {"good.example": ["93.184.216.34", "2606:2800:220:1::1"], "inside.example": ["10.0.0.8"]}
    world = World(tmp_path, mode="permissive", resolver=lambda host, port: names.get(host, []))
    body = """
      const dns = require("dns/promises");
      const old = await new Promise((resolve) => require("dns").lookup("good.example", { family: 6 }, (...given) => resolve(given)));
      return [await dns.lookup("good.example"), await dns.lookup("good.example", { all: true }), await dns.resolve4("good.example"), old,
        await dns.lookup("10.1.1.1"), (await caught(() => dns.lookup("inside.example"))).code, (await caught(() => dns.lookup("none.example"))).code,
        (await caught(() => dns.resolve("good.example", "MX"))).code];
    """
    try:
        one, every, four, old, literal, inside, none, records = run(world, body)
    finally:
        world.close()
    assert one == {"address": "93.184.216.34", "family": 4}
    assert [item["family"] for item in every] == [4, 6]
    assert four == ["93.184.216.34"]
    assert old == [None, "2606:2800:220:1::1", 6]
    assert literal == {"address": "10.1.1.1", "family": 4}
    assert (inside, none, records) == ("EREFUSED", "ENOTFOUND", "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM")


def test_addresses_are_told_apart(world: World) -> None:
    body = """
      const { isIP, BlockList, SocketAddress } = require("net_computing");
      const list = new BlockList();
      list.addSubnet("10.0.0.0", 8); list.addAddress("::1", "ipv6"); list.addRange("192.168.0.10", "192.168.0.20");
      const texts = ["1.2.3.4", "01.2.3.4", "1.2.3", "256.1.1.1", "::", "::1", "1::2::3", "fe80::1%eth0", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7", "g::1", ""];
      return [texts.map(isIP), ["10.255.0.1", "11.0.0.1", "192.168.0.15", "192.168.0.21"].map((one) => list.check(one)), list.check("::1", "ipv6"), list.check("::ffff:10.1.1.1", "ipv6"),
        list.rules.length, new SocketAddress({ address: "1.2.3.4", port: 80 }).port, typeof require("net_computing").connect];
    """
    assert run(world, body) == [[4, 0, 0, 0, 6, 6, 0, 6, 6, 6, 0, 0, 0], [True, False, True, False], True, True, 3, 80, "undefined"]  # fmt: skip
