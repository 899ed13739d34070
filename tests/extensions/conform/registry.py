"""A small npm registry on the loopback, and a small loader with the real one's interface: corpus commands offline."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LOADER = """
import { pathToFileURL } from "node:url";
export async function loadExtensions(paths, cwd) {
  const runtime = { pendingProviderRegistrations: [] };
  const extensions = [], errors = [];
  for (const path of paths) {
    const found = { path };
    for (const kind of ["tools", "commands", "handlers", "shortcuts", "flags", "messageRenderers"])
      found[kind] = new Map();
    const pi = {
      registerTool: (tool) => found.tools.set(tool.name, { definition: tool }),
      registerCommand: (name, options) => found.commands.set(name, { name, ...options }),
      on: (event, handler) => found.handlers.set(event, [...(found.handlers.get(event) ?? []), handler]),
    };
    try {
      const { default: factory } = await import(pathToFileURL(path).href);
      await factory(pi);
      extensions.push(found);
    } catch (error) {
      errors.push({ path, error: `Failed to load extension: ${error.message}` });
    }
  }
  return { extensions, errors, runtime };
}
"""
TOOLS = "".join(
    f"export const create{kind}ToolDefinition = () => ({{ name: '{kind.lower()}', label: '{kind.lower()}', "
    f"description: 'Words for {kind}', promptSnippet: 'Snippet', "
    "parameters: { type: 'object', properties: {} } });\n"
    for kind in ("Read", "Bash", "Edit", "Write", "Grep", "Find", "Ls")
)
LOADER_PACKAGE = {
    "package.json": json.dumps({"name": "loader", "version": "1.0.0", "type": "module"}),
    "dist/core/extensions/loader.js": LOADER,
    "dist/index.js": TOOLS,
}


def tarball(files: dict[str, str]) -> bytes:
    """A package as npm packs one; the same files give the same bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=9) as archive:
        for name, text in sorted(files.items()):
            item = tarfile.TarInfo(f"package/{name}")
            data = text.encode()
            item.size, item.mode = len(data), 0o644
            archive.addfile(item, io.BytesIO(data))
    return out.getvalue()


class Registry:
    """`with Registry([files, …]) as registry:`; `registry.url` is what npm is given."""

    def __init__(self, packages: list[dict[str, str]]) -> None:
        self.archives: dict[str, tuple[dict[str, Any], bytes]] = {}
        for files in packages:
            document = json.loads(files["package.json"])
            self.archives[document["name"]] = (document, tarball(files))
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                status, kind, data = registry.answer(self.path)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    def answer(self, path: str) -> tuple[int, str, bytes]:
        name = path.strip("/").replace("%2f", "/")
        if name.endswith(".tgz"):
            return 200, "application/octet-stream", self.archives[name.removesuffix(".tgz")][1]
        if name not in self.archives:
            return 404, "application/json", b'{"error": "not found"}'
        document, data = self.archives[name]
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        version = {**document, "dist": {"tarball": f"{self.url}{name}.tgz", "integrity": integrity}}
        told = {"name": name, "dist-tags": {"latest": document["version"]}, "versions": {document["version"]: version}}
        return 200, "application/json", json.dumps(told).encode()

    def __enter__(self) -> Registry:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def use(monkeypatch: Any, registry: Registry, cache: Path) -> None:
    """npm with this registry and an empty cache, and nothing of the machine's own settings."""
    monkeypatch.setenv("npm_config_registry", registry.url)
    monkeypatch.setenv("npm_config_cache", str(cache))
    monkeypatch.setenv("npm_config_userconfig", str(cache.with_name("npmrc")))
    monkeypatch.setenv("npm_config_update_notifier", "false")
