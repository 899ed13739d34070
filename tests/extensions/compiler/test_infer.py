"""Capability inference (Pi §2B.2): evidence, order, scopes only from literals."""

from __future__ import annotations

import pytest

from forestay.extensions.compiler.build import build
from forestay.extensions.compiler.infer import infer_text

USES = {
    'import * as fs from "node:fs"; fs.readFileSync(x);': {"read"},
    'import fs from "fs"; fs.promises.writeFile(x, y);': {"write"},
    'import { existsSync, mkdirSync } from "fs";': {"read", "write"},
    'const { readdir } = require("fs/promises"); readdir(x);': {"read"},
    'import * as fs from "node:fs"; give(fs);': {"read", "write"},
    'import fs from "fs"; fs.somethingNew(x);': {"read", "write"},
    'import { spawn } from "child_process"; spawn(x);': {"exec"},
    'import cp from "node:child_process"; cp["exec" + "Sync"](x);': {"exec"},
    "fetch(x);": {"http"},
    "globalThis.fetch(x);": {"http"},
    "new WebSocket(x);": {"http"},
    'import https from "https"; https.request(x);': {"http"},
    "process.env.HOME;": {"env"},
    'import os from "os"; os.homedir();': {"env"},
    'import path from "path"; path.join(x);': set(),
    'pi.tool("grep", {});': {"read"},
    'pi.tool("edit", {});': {"write"},
    'pi.tool("bash", {});': {"exec"},
    'pi.tool("other", {});': {"tool"},
    "pi.tool(name, {});": {"tool"},
    "pi.exec(x);": {"exec"},
    "pi.http(x);": {"http"},
    "pi.fs.read(x); pi.fs.delete(x);": {"read", "write"},
    "pi.registerProvider(x, y);": {"http"},
    "pi.appendEntry(x);": {"session"},
    "pi.log(x);": {"log"},
    "ctx.ui.notify(x);": {"ui"},
    "ctx.sessionManager.getEntries();": {"session"},
    "export default function (api: ExtensionAPI) { api.exec(x); }": {"exec"},
    "export default function (it) { it.exec(x); }": {"exec"},
    "/a/.exec(x); regex.exec(x);": set(),
    'import type { Stats } from "fs";': set(),
}


@pytest.mark.parametrize("text", USES)
def test_a_use_infers_its_capability(text):
    assert set(infer_text("a.ts", text).capabilities) == USES[text]


def test_scopes_come_from_literals():
    found = infer_text(
        "a.ts",
        'import fs from "fs";\nfs.readFileSync("./src/a.txt"); fs.readFileSync("docs/b.md");\n'
        'fetch("https://api.example.com/v1"); fetch(`https://other.example/${id}`);\nprocess.env.TOKEN;',
    )
    scopes = {need.capability: need.scope for need in found.requirements}
    assert scopes["read"].paths == ("docs/b.md", "src/a.txt")
    assert scopes["http"].hosts == ("api.example.com", "other.example")
    assert scopes["env"].env == ("TOKEN",)


@pytest.mark.parametrize(
    "text",
    [
        'import fs from "fs"; fs.readFileSync("a.txt"); fs.readFileSync(name);',
        'import fs from "fs"; fs.readFileSync("/etc/passwd");',
        'import fs from "fs"; fs.readFileSync("../up.txt");',
        'import fs from "fs"; fs.readFileSync("~/x");',
    ],
)
def test_one_dynamic_or_outside_path_leaves_the_capability_without_scope(text):
    assert infer_text("a.ts", text).requirements[0].scope is None


@pytest.mark.parametrize("text", ["fetch(`https://${host}/x`);", 'fetch("https://a.example"); fetch(url);'])
def test_a_dynamic_host_leaves_http_without_scope(text):
    assert infer_text("a.ts", text).requirements[0].scope is None


def test_the_order_is_by_capability_method_and_scope_and_the_same_every_time():
    text = 'import fs from "fs"; pi.tool("read"); fetch("https://b.x/1"); fetch("https://a.x/1"); pi.exec();'
    text += 'fs.statSync("z");'
    first = infer_text("a.ts", text)
    assert [need.capability for need in first.requirements] == ["exec", "http", "read"]
    assert first.requirements[1].scope.hosts == ("a.x", "b.x")
    assert first.requirements[2].methods == ("fs", "tool")
    assert first == infer_text("a.ts", text)


def test_evidence_is_hashed_and_has_a_place():
    (item,) = infer_text("a.ts", '\n  fetch("https://api.example.com/v1");').evidence
    assert (item.capability, item.kind, item.preview, str(item.location)) == (
        "http", "literal_url", "api.example.com", "a.ts:2:3",
    )  # fmt: skip
    assert item.value_hash.startswith("sha256:")


def test_required_is_declared_and_inferred(extension):
    manifest = """{"schema": "pi.ext.manifest.v1", "extension_id": "a", "name": "A", "version": "1",
      "api_version": "1.0", "runtime": "js", "entrypoint": "main.ts", "capabilities": ["ui"]}"""
    root = extension({"extension.json": manifest, "main.ts": "export default () => fetch('https://a.example/');"})
    meta = build(root).meta
    assert meta.capabilities_required == ("http", "ui")
    assert meta.capability_scope_inferred["capabilities"] == [
        {"capability": "http", "methods": ["http"], "scope": {"hosts": ["a.example"]}}
    ]
