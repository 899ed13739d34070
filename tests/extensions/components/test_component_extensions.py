"""A component is an extension like any other: found, trusted, compiled once, resolved, loaded, asked, inspected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.components.guests import REGISTRATION, component, core

from forestay.extensions import Extensions, build_catalog, default_cache, sources
from forestay.extensions.compiler.source import discover
from forestay.extensions.components.native import compiled_key
from forestay.extensions.components.traced import replay
from forestay.extensions.engine.bytecode import KeptBytecode
from forestay.extensions.evidence import stream_of
from forestay.extensions.manifest import SCHEMA, Manifest
from forestay.extensions.settings import Settings
from forestay.extensions.trust import brought
from forestay.kernel import Ledger, Problem

MANIFEST = Manifest(SCHEMA, "ext.probe", "probe", "1.2.3", "1.0", "wasm", "probe.wasm", capabilities=("read",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project" / ".pi" / "extensions" / "probe"
    made.mkdir(parents=True)
    (made / "extension.json").write_bytes(MANIFEST.canonical_bytes())
    (made / "probe.wasm").write_bytes(component())
    return made


def _lone(tmp_path: Path, data: bytes, name: str = "lone.wasm") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_a_manifest_is_beside_it_or_inside_it_or_made_from_its_name(folder: Path, tmp_path: Path) -> None:
    assert sources(folder)[0].manifest == MANIFEST
    inside = sources(_lone(tmp_path, component(MANIFEST)))[0].manifest
    assert (inside.extension_id, inside.version, inside.entrypoint) == ("ext.probe", "1.2.3", "lone.wasm")
    derived = sources(_lone(tmp_path, component(), "plain.wasm"))[0].manifest
    assert (derived.extension_id, derived.runtime, derived.declared()) == ("plain", "wasm", ())


def test_discovery_and_trust_know_components(folder: Path, tmp_path: Path) -> None:
    project = folder.parents[2]
    (folder.parent / "lone.wasm").write_bytes(component())
    assert [path.name for path in discover(folder.parent)] == ["lone.wasm", "probe.wasm"]
    assert {item.path for item in brought(project)} == {".pi/extensions/lone.wasm", ".pi/extensions/probe"}


@pytest.mark.parametrize("data", [core(), b"\x7fELF" + bytes(64), b"", component()[:60]])
async def test_what_is_no_component_does_not_load(tmp_path: Path, data: bytes) -> None:
    async with _extensions(tmp_path) as extensions:
        with pytest.raises(Problem) as caught:
            await extensions.load(_lone(tmp_path, data))
        assert caught.value.key == "extension_invalid"


@pytest.mark.parametrize("change", [{"runtime": "js"}, {"entrypoint": "index.js"}])
def test_runtime_and_entrypoint_must_agree(folder: Path, change: dict[str, str]) -> None:
    (folder / "index.js").write_text("export default () => {}")
    manifest = {**json.loads(MANIFEST.canonical_bytes()), **change}
    (folder / "extension.json").write_text(json.dumps(manifest))
    with pytest.raises(Problem) as caught:
        sources(folder)
    assert caught.value.key == "manifest_invalid" and caught.value.details["at"] == "runtime"


def _extensions(tmp_path: Path, **options: Any) -> Extensions:
    root = tmp_path / "project"
    root.mkdir(exist_ok=True)
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    grants = options.pop("grants", ())
    ledger = Ledger.open(tmp_path / "ledger.db")
    settings = Settings(environ={}, data=data, **options)
    return Extensions(ledger, root=root, mode="strict", grants=grants, settings=settings)


async def test_it_is_resolved_loaded_and_asked_through_the_one_door(folder: Path, tmp_path: Path) -> None:
    (folder.parents[2] / "note.txt").write_text("hello")
    async with _extensions(tmp_path, grants=["read"]) as extensions:
        (member,) = await extensions.load(folder)
        assert member.extension.runtime == "wasm"
        asked = {"op": "read", "path": "note.txt", "encoding": "utf8"}
        assert (await extensions.call_tool("fs", asked)).details == {"text": "hello"}
        assert await extensions.run_command("greet", "Ada") == {"text": "Ada"}
        assert (await extensions.emit({"type": "tool_call", "toolName": "bash", "input": {}}))["block"] is False
        denied = await extensions.call_tool("fs", {"op": "write", "path": "x", "text": "y"})
        assert denied.is_error and denied.hostcall == "denied"
    records = await Ledger.open(tmp_path / "ledger.db").read(stream_of("ext.probe"))
    assert [record.type for record in records][:2] == ["capability.resolve", "extension.ready"]
    assert {record.payload["runtime"] for record in records if record.type.startswith("host_call")} == {"wasm"}


async def test_machine_code_is_kept_under_the_seal_and_a_changed_one_is_made_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORESTAY_CACHE", str(tmp_path / "cache"))
    async with _extensions(tmp_path) as extensions:
        await extensions.load(folder)
    (kept,) = (tmp_path / "cache" / "components").rglob("*.qbc")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    async with _extensions(tmp_path) as extensions:
        await extensions.load(folder)
        assert (await extensions.call_tool("echo", {"a": 1})).details == {"a": 1}
    records = await Ledger.open(tmp_path / "ledger.db").read(stream_of("ext.probe"))
    assert [record.payload["what"] for record in records if record.type == "cache.refused"] == ["bytecode"]
    cache = default_cache(tmp_path / "data")
    assert cache is not None
    again = KeptBytecode(tmp_path / "cache" / "components", cache.seal)
    assert again.find(compiled_key(component())) is not None  # made again, and sealed


async def test_the_catalog_lists_it(folder: Path) -> None:
    catalog, skipped = build_catalog(folder.parent, "community", "2026-01-01T00:00:00Z")
    (item,) = catalog.items
    assert (item.id, item.version, item.capabilities, skipped) == ("ext.probe", "1.2.3", ("read",), ())
    assert item.total_bytes == len(component())


async def test_inspecting_it_equals_its_javascript_twin(folder: Path, tmp_path: Path) -> None:
    tools = [{**tool, "label": tool["name"]} for tool in REGISTRATION["tools"]]
    twin = tmp_path / "twin" / "index.js"
    twin.parent.mkdir()
    twin.write_text(f"""export default (pi) => {{
      for (const tool of {json.dumps(tools)}) pi.registerTool({{ ...tool, execute: async () => ({{ content: [] }}) }});
      pi.registerCommand("greet", {{ description: "Greets", handler: async () => {{}} }});
      pi.on("tool_call", () => undefined);
      pi.on("session_start", () => undefined);
    }}""")
    async with _extensions(tmp_path) as extensions:
        (one,) = await extensions.load(folder)
        (other,) = await extensions.load(twin.parent)
        shown = [member.extension.registrations.inspect() for member in (one, other)]
        for item in shown:
            del item["path"]
        assert shown[0] == shown[1]


async def test_a_trace_replays_line_by_line_and_a_changed_one_does_not(folder: Path, tmp_path: Path) -> None:
    (folder.parents[2] / "note.txt").write_text("hello")
    lines: list[bytes] = []
    async with _extensions(tmp_path, grants=["read"], record=lines.append) as extensions:
        (member,) = await extensions.load(folder)
        await extensions.call_tool("fs", {"op": "read", "path": "note.txt", "encoding": "utf8"})
        await extensions.run_command("greet", "Ada Lovelace")
    (folder.parents[2] / "note.txt").unlink()  # a replay asks nobody
    assert replay(lines, member.artifact) == lines
    with pytest.raises(Problem) as caught:
        replay([line.replace(b"hello", b"hullo") if b'"sync"' in line else line for line in lines], member.artifact)
    assert caught.value.key == "replay_diverged"
