"""The guest's Node modules and globals against Node itself: the same programs, the same answers.

The guest runs in the real engine over the real dispatcher, files, processes and sockets; Node runs beside it.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.dispatcher_world import World

from forestay.extensions.engine.limits import Limits
from forestay.extensions.isolate import Program
from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.outcomes import Surroundings
from forestay.kernel import Problem

HERE = Path(__file__).parent
CASES = (HERE / "guest_cases.mjs").read_text("utf-8")
NAMES = re.findall(r"^  (\w+): ", CASES, re.MULTILINE)
NODE = shutil.which("node")


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        if self.path == "/moved":
            return self._send(302, b"", [("Location", "/json")])
        if self.path == "/hang":
            threading.Event().wait(1)
            return self._send(200, b"late")
        if self.path == "/json":
            return self._send(200, b'{"a":[1,2]}', [("Content-Type", "application/json")])
        if self.path == "/big":
            return self._send(200, b"z" * 300_000)
        if self.path == "/missing":
            return self._send(404, b"no")
        seen = f"{self.command} {self.path} {self.headers.get('X-Test')} {self.headers.get('Content-Type')} "
        return self._send(200, seen.encode() + body, [("Content-Type", "text/plain")])

    do_POST = do_HEAD = do_GET

    def _send(self, status: int, body: bytes, headers: list[tuple[str, str]] | None = None) -> None:
        self.send_response(status)
        for name, value in headers or []:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            try:
                self.wfile.write(body)
            except OSError:
                pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, server: str) -> dict[str, Any]:
    if NODE is None:
        pytest.skip("no Node.js to compare with")
    folder = tmp_path_factory.mktemp("node")
    command = [NODE, str(HERE / "guest_node.mjs"), str(folder), server]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return dict(json.loads(done.stdout))


EXTENSION = """
const find = globalThis.__forestay_modules__;
const require = (name) => find("pi:node/" + name.replace(/^node:/, "").replace(/\\//g, "_"));
export default (pi) => {
  for (const name of Object.keys(cases)) {
    pi.registerTool({ name, description: name, parameters: { type: "object" }, async execute(id, params) {
      require("fs").mkdirSync(params.dir, { recursive: true });
      const value = await cases[name](require, params.dir, params.server);
      return { content: [{ type: "text", text: JSON.stringify(value) ?? "null" }] };
    } });
  }
};
"""


async def guest(folder: Path, server: str, names: list[str]) -> dict[str, Any]:
    grants = ["read", "write", "exec", "http", "http:127.0.0.1", "env"]
    world = World(folder, mode="strict", grants=grants)
    source = CASES.replace("export const cases", "const cases") + EXTENSION
    extension = JavaScriptGuest(
        Program("index.js", "differential", source),
        Surroundings("ext.test", str(world.project)),
        world.dispatcher,
        limits=Limits(memory_mb=128, slice_ms=10_000),
        deadline=20,
    )
    results: dict[str, Any] = {}
    try:
        await extension.load()
        for name in names:
            try:
                outcome = await extension.call_tool(name, {"dir": f"{world.project}/{name}", "server": server})
            except Problem as problem:
                results[name] = {"thrown": problem.message}
                continue
            if outcome.is_error:
                results[name] = {"thrown": outcome.content}
            else:
                results[name] = json.loads(outcome.content[0]["text"])
    finally:
        await extension.close()
        world.close()
    return results


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, server: str) -> dict[str, Any]:
    return asyncio.run(guest(tmp_path_factory.mktemp("guest"), server, NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_the_guest_answers_as_node_does(name: str, node: dict[str, Any], ours: dict[str, Any]) -> None:
    expected, found = node[name], ours[name]
    assert "thrown" not in expected, expected
    assert found == expected
