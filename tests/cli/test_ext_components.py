"""Components on the command line: made, wrapped, inspected, called, watched, traced, as somebody types it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forestay.cli.main import run
from forestay.extensions import sources
from tests.extensions.components.guests import core

Ext = Callable[..., dict[str, Any]]
MANIFEST = {
    "schema": "pi.ext.manifest.v1", "extension_id": "ext.probe", "name": "probe", "version": "2.0.0",
    "api_version": "1.0", "runtime": "wasm", "entrypoint": "probe.wasm",
}  # fmt: skip


@pytest.fixture
def ext(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ext:
    """Run `forestay ext …` in a new folder with a core module; its envelope, with the exit code beside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PI_EXTENSION_LOG_DIR", str(tmp_path / "logs"))
    (tmp_path / "core.wasm").write_bytes(core())
    (tmp_path / "note.txt").write_text("one two three")
    (tmp_path / "m.json").write_text(json.dumps(MANIFEST))

    def typed(*words: str) -> dict[str, Any]:
        code = run(["ext", *words])
        envelope: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return {**envelope, "code": code}

    return typed


def test_a_core_module_is_wrapped_inspected_called_traced_and_replayed(ext: Ext, tmp_path: Path) -> None:
    made = ext("wrap", "core.wasm", "--output", "probe.wasm", "--manifest", "m.json")
    assert made["result"]["carries"] == "ext.probe" and made["code"] == 0
    assert sources(tmp_path / "probe.wasm")[0].manifest.version == "2.0.0"
    (found,) = ext("inspect", "probe.wasm")["result"]["extensions"]
    assert found["commands"] == [{"name": "greet", "description": "Greets"}]
    assert ext("call", "probe.wasm", "echo", '{"a": 1}')["result"]["details"] == {"a": 1}
    refused = ext("call", "probe.wasm", "fs", '{"op": "read", "path": "note.txt"}', "--policy", "strict")
    assert refused["error"]["details"]["problem"] == "capability_denied" and refused["code"] != 0
    assert ext("command", "probe.wasm", "greet", "Ada")["result"]["returned"] == {"text": "Ada"}
    assert ext("trace", "probe.wasm", "-o", "t.jsonl", "--tool", "echo")["code"] == 0
    assert ext("replay", "t.jsonl", "probe.wasm")["result"]["identical"] is True
    assert ext("check", "probe.wasm")["result"]["extensions"][0]["verdict"] == "compatible"
    assert ext("build", "probe.wasm", "--out", "built")["code"] == 0
    assert sorted(path.name for path in (tmp_path / "built").iterdir()) == [
        "artifact.json",
        "index.js.map",
        "index.wasm",
    ]
    assert ext("build", "probe.wasm", "--bytecode")["error"]["details"]["problem"] == "invalid_usage"


def test_capture_proposes_what_was_asked_for_also_when_it_was_refused(ext: Ext) -> None:
    ext("wrap", "core.wasm", "--output", "probe.wasm", "--manifest", "m.json")
    calls = ['fs {"op": "read", "path": "note.txt"}', 'fs {"op": "write", "path": "out/x", "text": ""}', "exec {}"]
    words = [word for call in calls for word in ("--call", call)]
    captured = ext("capture", "probe.wasm", "--policy", "strict", "--grant", "read", *words)["result"]
    assert [item["is_error"] for item in captured["calls"]] == [False, True, True]
    assert captured["capability_manifest"]["ext.probe"]["capabilities"] == [
        {"capability": "exec", "methods": ["exec"]},
        {"capability": "read", "methods": ["fs"], "scope": {"paths": ["note.txt"]}},
        {"capability": "write", "methods": ["fs"], "scope": {"paths": ["out/x"]}},
    ]


@pytest.mark.parametrize("language", ["c", "javascript", "python", "rust"])
def test_a_project_has_the_world_a_manifest_and_a_build_command(ext: Ext, tmp_path: Path, language: str) -> None:
    made = ext("init", "words", "--lang", language)["result"]
    assert {"build.sh", "extension.json", "wit/extension.wit"} < set(made["files"])
    assert json.loads((tmp_path / "words" / "extension.json").read_text())["runtime"] == "wasm"
    assert "NAME" not in (tmp_path / "words" / next(iter(set(made["files"]) - {"build.sh"}))).read_text()


def test_a_language_that_is_not_there_is_named(ext: Ext, tmp_path: Path) -> None:
    assert "rust" in ext("init", "words", "--lang", "cobol")["error"]["details"]["fix"]
    assert not (tmp_path / "words").exists()


NEEDS = {"c": ["ziglang"], "python": ["componentize-py"]}


@pytest.mark.sweep
@pytest.mark.parametrize("language", ["c", "javascript", "python", "rust"])
def test_the_project_of_a_language_builds_and_counts_words(ext: Ext, tmp_path: Path, language: str) -> None:
    """With the real tool chain, from the package registry; what cannot be had is skipped by name."""
    ext("init", "words", "--lang", language)
    tools = _tools(tmp_path, language)
    done = subprocess.run(["sh", "words/build.sh"], cwd=tmp_path, env=tools, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (tmp_path / "forestay.toml").write_text("[extensions]\nbuild_seconds = 600\n")
    called = ext("call", "words", "count_words", '{"path": "note.txt"}', "--grant", "read", "--policy", "strict")
    assert called["result"]["details"] == {"words": 3}, called
    refused = ext("call", "words", "count_words", '{"path": "note.txt"}', "--policy", "strict")
    assert refused["error"]["details"]["hostcall"] == "denied"


def _tools(folder: Path, language: str) -> dict[str, str]:
    """A PATH on which the language's tools and our command are found."""
    if language == "rust":
        return {**_tools(folder, ""), "RUSTC": _rustc()}
    if language == "javascript":
        install = ["npm", "install", "--no-audit", "--no-fund", "@bytecodealliance/jco"]
        if shutil.which("npm") is None or subprocess.run(install, cwd=folder / "words", capture_output=True).returncode:
            pytest.skip("jco cannot be installed")
    bin_folder = folder / "tools" / "bin"
    if language in NEEDS:
        subprocess.run([sys.executable, "-m", "venv", str(folder / "tools")], check=True)
        install = [str(bin_folder / "pip"), "install", "-q", *NEEDS[language]]
        if subprocess.run(install, capture_output=True).returncode != 0:
            pytest.skip(f"{NEEDS[language][0]} cannot be installed")
    path = os.pathsep.join([str(bin_folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path}


def _rustc() -> str:
    """A Rust compiler that makes WebAssembly, of those on the PATH."""
    found = [path for folder in os.environ["PATH"].split(os.pathsep) if (path := shutil.which("rustc", path=folder))]
    for compiler in found:
        printed = [compiler, "--print", "target-libdir", "--target", "wasm32-unknown-unknown"]
        if Path(subprocess.run(printed, capture_output=True, text=True).stdout.strip()).is_dir():
            return compiler
    pytest.skip(f"no rustc here has the target wasm32-unknown-unknown (looked at {found or 'no rustc at all'})")
