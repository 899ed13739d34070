# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""Packages that many extensions bring, as they come from the registry: bundled, loaded, and doing their work."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from forestay import assets
from forestay.extensions.extensions import Extensions
from forestay.extensions.settings import Settings
from forestay.kernel import ExtensionConfig, ExtensionPolicy, Ledger

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(assets.npm_command() is None, reason="there is no npm here"),
]

PACKAGES = ("glob@14.0.4", "openai@4.104.0")
GLOB = """
import { glob, globSync } from "glob";
export default (pi) => pi.registerTool({ name: "go", description: "d", parameters: { type: "object" }, async execute(_id, _params, _signal, _update, { cwd }) {
  const iterated = [];
  for await (const one of glob.iterate("*.md", { cwd })) iterated.push(one);
  const typed = (await glob("**", { cwd, withFileTypes: true, nodir: true, ignore: "extension/**" })).map((one) => one.relative());
  const found = [await glob("src/**/*.{ts,md}", { cwd }), globSync("**/*.md", { cwd, ignore: "extension/**" }), typed, iterated];
  return { content: [{ type: "text", text: JSON.stringify(found.map((list) => list.sort())) }] };
} });
"""
OPENAI = """
import OpenAI from "openai";
export default (pi) => pi.registerTool({ name: "go", description: "d", parameters: { type: "object", properties: { url: { type: "string" } } }, async execute(_id, { url }) {
  const client = new OpenAI({ apiKey: "sk-test", baseURL: `${url}/v1`, maxRetries: 0 });
  const said = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "hi" }] });
  let streamed = "";
  for await (const part of await client.chat.completions.create({ model: "m", messages: [], stream: true })) streamed += part.choices[0].delta.content;
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  const file = await client.files.create({ file: await OpenAI.toFile(Buffer.from("hello"), "a.txt"), purpose: "assistants" });
  const missing = await client.models.retrieve("none").catch((error) => [error.constructor.name, error.status]);
  return { content: [{ type: "text", text: JSON.stringify([said.choices[0].message.content, streamed, models, file.id, missing]) }] };
} });
"""


class Provider(BaseHTTPRequestHandler):
    """As much of the provider's interface as the client's basic job needs."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self._body()
        if self.headers.get("Authorization") != "Bearer sk-test":
            return self._send(401, "application/json", b"{}")
        if self.path == "/v1/models":
            return self._send(200, "application/json", b'{"object": "list", "data": [{"id": "m1"}, {"id": "m2"}]}')
        if self.path == "/v1/files":
            known = b'filename="a.txt"' in body and b"hello" in body
            return self._send(200, "application/json", b'{"id": "file-1"}' if known else b'{"id": "lost"}')
        if self.path != "/v1/chat/completions":
            return self._send(404, "application/json", b'{"error": {"message": "no such model"}}')
        if json.loads(body).get("stream"):
            parts = [json.dumps({"choices": [{"delta": {"content": word}}]}) for word in ("Hel", "lo")]
            return self._send(200, "text/event-stream", "".join(f"data: {p}\n\n" for p in (*parts, "[DONE]")).encode())
        return self._send(200, "application/json", b'{"choices": [{"message": {"content": "Aye."}}]}')

    do_GET = do_POST

    def _body(self) -> bytes:
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    (folder / "package.json").write_text('{"name": "packages", "private": true}')
    command = [*(assets.npm_command() or ()), "install", "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"npm brings nothing: {done.stderr.decode()[-300:]}")
    return folder


async def outcome(project: Path, installed: Path, source: str, *grants: str, **arguments: Any) -> Any:
    folder = project / "extension"
    shutil.copytree(installed / "node_modules", folder / "node_modules", symlinks=True)
    (folder / "index.ts").write_text(source)
    (folder / "package.json").write_text('{"name": "brings", "pi": {"extensions": ["./index.ts"]}}')
    settings = ExtensionConfig(ExtensionPolicy(mode="strict"))
    async with (
        Ledger.open(project / "data") as ledger,
        Extensions(ledger, root=project, grants=grants, settings=Settings(config=settings)) as suite,
    ):
        await suite.load(folder)
        done = await suite.call_tool("go", arguments)
        assert not done.is_error, done.content
        return json.loads(done.content[0]["text"])


async def test_glob_finds_files_in_a_granted_folder(tmp_path: Path, installed: Path) -> None:
    for name in ("src/a/one.ts", "src/two.md", "top.md"):
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(name)
    found = await outcome(tmp_path / "project", installed, GLOB, "read:**")
    assert found[:2] == [["src/a/one.ts", "src/two.md"], ["src/two.md", "top.md"]]
    assert {"src/a/one.ts", "src/two.md", "top.md"} <= set(found[2]) and found[3] == ["top.md"]


async def test_openai_speaks_to_a_granted_server(tmp_path: Path, installed: Path, provider: str) -> None:
    found = await outcome(tmp_path, installed, OPENAI, "http:127.0.0.1", "env", url=provider)
    assert found == ["Aye.", "Hello", ["m1", "m2"], "file-1", ["NotFoundError", 404]]
