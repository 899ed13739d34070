"""`forestay ext check|build|catalog`, as a program sees them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from forestay.cli.ext_compile import app
from forestay.cli.output import take_flags

MANIFEST = {
    "schema": "pi.ext.manifest.v1",
    "extension_id": "ext.one",
    "name": "One",
    "version": "1.0.0",
    "api_version": "1.0",
    "runtime": "js",
    "entrypoint": "main.ts",
    "capabilities": ["ui"],
}


@pytest.fixture
def extension(tmp_path):
    root = tmp_path / "one"
    root.mkdir()
    (root / "extension.json").write_text(json.dumps(MANIFEST))
    (root / "main.ts").write_text("export default (pi) => { pi.exec('ls'); fetch('https://a.example/'); };")
    return root


def _run(*arguments):
    take_flags([])  # whatever another test asked for
    done = CliRunner().invoke(app.typer, [str(argument) for argument in arguments], standalone_mode=False)
    return done.return_value if done.return_value is not None else done.exit_code, json.loads(done.stdout)


def test_check_tells_verdict_needs_and_drift(extension):
    code, envelope = _run("check", extension)
    (found,) = envelope["result"]["extensions"]
    assert code == 0
    assert found["verdict"] == "compatible"
    assert found["capabilities_required"] == ["exec", "http", "ui"]
    assert found["drift"] == {"undeclared": ["exec", "http"], "unused": ["ui"], "surprising": []}


def test_check_of_a_blocked_extension_fails_with_the_place(extension):
    (extension / "main.ts").write_text('import vm from "node:vm";\nexport default () => vm;')
    code, envelope = _run("check", extension)
    assert code != 0
    assert envelope["success"] is False
    assert envelope["error"]["message"] == "node:vm is forbidden: Arbitrary code execution."
    assert envelope["error"]["details"]["at"] == "main.ts:1:16"


def test_build_writes_the_artifact(extension, tmp_path):
    code, envelope = _run("build", extension, "--out", tmp_path / "out", "--no-cache")
    assert code == 0
    meta = json.loads((tmp_path / "out" / "artifact.json").read_bytes())
    assert meta["hash"] == envelope["result"]["hash"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["artifact.json", "index.js", "index.js.map"]


def test_catalog_is_built_validated_and_shown(extension, tmp_path):
    file = tmp_path / "catalog.json"
    assert _run("catalog", "build", extension.parent, "--out", file)[0] == 0
    assert _run("catalog", "validate", file)[1]["result"]["total_extensions"] == 1
    code, envelope = _run("catalog", "show", file, "ext.one")
    assert (code, envelope["result"]["items"][0]["id"]) == (0, "ext.one")
    assert _run("catalog", "show", file, "nobody")[0] != 0
