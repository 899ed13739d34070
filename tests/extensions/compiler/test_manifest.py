"""The manifest (Pi §2B.1) and its hard errors (Pi §2B.4)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forestay.extensions.compiler.source import source
from forestay.extensions.manifest import parse_manifest
from forestay.kernel import Problem

GOOD = {
    "schema": "pi.ext.manifest.v1",
    "extension_id": "ext.todo",
    "name": "Todo",
    "version": "0.1.0",
    "api_version": "1.0",
    "runtime": "js",
    "entrypoint": "src/index.ts",
}


def _cap(**need):
    return {"capability_manifest": {"schema": "pi.ext.cap.v1", "capabilities": [need]}}


BAD = {
    "unknown schema": ({"schema": "pi.ext.manifest.v2"}, "schema"),
    "no schema": ({"schema": None}, "schema"),
    "empty name": ({"name": ""}, "name"),
    "blank version": ({"version": "  "}, "version"),
    "empty api_version": ({"api_version": ""}, "api_version"),
    "empty entrypoint": ({"entrypoint": ""}, "entrypoint"),
    "bad id": ({"extension_id": "Not An Id"}, "extension_id"),
    "long id": ({"extension_id": "a" * 65}, "extension_id"),
    "unknown runtime": ({"runtime": "python"}, "$.runtime"),
    "unknown field": ({"colour": "red"}, "$"),
    "name is no string": ({"name": 3}, "$.name"),
    "unknown capability": ({"capabilities": ["read", "fly"]}, "capabilities[1]"),
    "unknown scoped capability": (_cap(capability="fly"), "capability_manifest.capabilities[0].capability"),
    "scope item is no string": (
        _cap(capability="read", scope={"paths": [1]}),
        "$.capability_manifest.capabilities[0].scope.paths[0]",
    ),
    "scope is no object": (_cap(capability="read", scope=["src"]), "$.capability_manifest.capabilities[0].scope"),
    "path with dots": (
        _cap(capability="read", scope={"paths": ["a/../b"]}),
        "capability_manifest.capabilities[0].scope.paths",
    ),
    "path with backslash": (
        _cap(capability="read", scope={"paths": ["a\\b"]}),
        "capability_manifest.capabilities[0].scope.paths",
    ),
    "host with scheme": (
        _cap(capability="http", scope={"hosts": ["https://a.b"]}),
        "capability_manifest.capabilities[0].scope.hosts",
    ),
    "host in capitals": (
        _cap(capability="http", scope={"hosts": ["A.b"]}),
        "capability_manifest.capabilities[0].scope.hosts",
    ),
    "variable with a space": (
        _cap(capability="env", scope={"env": ["A B"]}),
        "capability_manifest.capabilities[0].scope.env",
    ),
    "unknown cap schema": (
        {"capability_manifest": {"schema": "x", "capabilities": []}},
        "$.capability_manifest.schema",
    ),
}


@pytest.mark.parametrize("mistake", BAD)
def test_a_mistake_is_a_hard_error_that_says_where(mistake):
    change, at = BAD[mistake]
    with pytest.raises(Problem) as caught:
        parse_manifest({**GOOD, **change}, "extension.json")
    assert (caught.value.key, caught.value.details["at"]) == ("manifest_invalid", at)


def test_a_good_manifest_is_read_and_hashed_over_its_canonical_bytes():
    scope = {"paths": ["src/**"], "hosts": ["*.example.com"], "env": ["HOME"]}
    document = {**GOOD, **_cap(capability="read", methods=["tool"], scope=scope)}
    manifest = parse_manifest(document, "extension.json")
    assert json.loads(manifest.canonical_bytes()) == document
    shuffled = dict(reversed(document.items()))
    assert parse_manifest(shuffled, "extension.json").canonical_bytes() == manifest.canonical_bytes()
    assert b" " not in manifest.canonical_bytes()


def test_extension_json_wins_over_package_json(extension):
    package = {"name": "p", "version": "9.9.9", "pi": {**GOOD, "extension_id": "from-package", "entrypoint": "b.ts"}}
    root = extension(
        {
            "extension.json": json.dumps({**GOOD, "entrypoint": "a.ts"}),
            "package.json": json.dumps(package),
            "a.ts": "",
            "b.ts": "",
        }
    )
    found = source(root)
    assert (found.manifest.extension_id, found.entry.name) == ("ext.todo", "a.ts")


def test_package_json_lends_its_name_and_version(extension):
    own = {key: value for key, value in GOOD.items() if key not in ("name", "version")}
    package = {"name": "lent", "version": "3.2.1", "pi": {**own, "entrypoint": "a.ts", "skills": ["./s"]}}
    manifest = source(extension({"package.json": json.dumps(package), "a.ts": ""})).manifest
    assert (manifest.name, manifest.version, manifest.extension_id) == ("lent", "3.2.1", "ext.todo")


@pytest.mark.parametrize("entry", ["../other.ts", "/etc/hosts", "missing.ts"])
def test_an_entrypoint_outside_or_absent_is_a_hard_error(extension, entry):
    extension({"other.ts": ""}, ".")
    with pytest.raises(Problem) as caught:
        source(extension({"extension.json": json.dumps({**GOOD, "entrypoint": entry})}))
    assert caught.value.key == "manifest_invalid"


def test_broken_json_is_a_manifest_problem(extension):
    with pytest.raises(Problem) as caught:
        source(extension({"extension.json": "{"}))
    assert caught.value.key == "manifest_invalid"


def test_the_schema_of_the_contract_accepts_what_we_accept():
    reference = Path(__file__).resolve().parents[4] / "shared/reference/pi/extension_manifest.json"
    manifest = parse_manifest(GOOD, "extension.json")
    if reference.exists():
        import jsonschema

        jsonschema.validate(json.loads(manifest.canonical_bytes()), json.loads(reference.read_bytes()))
    assert manifest.schema == "pi.ext.manifest.v1"
