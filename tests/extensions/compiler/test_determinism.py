"""The same sources give the same bytes, wherever they lie."""

from __future__ import annotations

import importlib
import json
import shutil

import pytest
from tests.extensions.conform.registry import Registry, tarball, use

from forestay import assets
from forestay.extensions.compiler.artifact import read_artifact
from forestay.extensions.compiler.build import build
from forestay.extensions.compiler.cache import Cache
from forestay.extensions.compiler.install import install
from forestay.extensions.engine.bytecode import compile_module
from forestay.kernel import Problem, Seal, canonical

FILES = {
    "package.json": '{"name": "same", "version": "1.2.3", "pi": {"extensions": ["./src/index.ts"]}}',
    "src/index.ts": 'import { Type } from "typebox";\nimport { help } from "./help";\nimport dep from "dep";\n'
    "// a remark\nexport default (pi) => pi.say(Type.String(), help, dep, import.meta.url);\n",
    "src/help.ts": 'import * as fs from "node:fs";\nexport const help = () => fs.readFileSync("x.txt");\n',
    "node_modules/dep/package.json": '{"name": "dep", "version": "1.0.0", "main": "index.js"}',
    "node_modules/dep/index.js": "module.exports = __dirname;",
}


def _bytes(artifact):
    return artifact.code, artifact.source_map, canonical.encode(artifact.meta)


def test_twice_and_in_two_folders_gives_identical_bytes(extension, tmp_path):
    first = extension(FILES, "one/deep/down")
    second = tmp_path / "two"
    shutil.copytree(first, second)
    made = {_bytes(build(place)) for place in (first, first, second)}
    assert len(made) == 1


def test_the_same_bytes_with_and_without_what_an_earlier_build_left(extension, tmp_path):
    root, cache = extension(FILES), Cache(tmp_path / "cache", Seal(b"key"))
    cold, kept, warm = build(root), build(root, cache=cache), build(root, cache=cache)
    assert _bytes(cold) == _bytes(kept) == _bytes(warm)


def test_a_changed_comment_changes_the_source_hash_and_the_artifact_hash_and_no_code(extension):
    before = build(extension(FILES, "a")).meta
    changed = {**FILES, "src/index.ts": FILES["src/index.ts"].replace("// a remark", "// another")}
    after = build(extension(changed, "b")).meta
    differing = {name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)}
    assert differing == {"source_hash", "hash"}
    assert before.code_hash == after.code_hash


def test_what_is_written_can_be_read_and_a_changed_byte_is_refused(extension, tmp_path):
    artifact = build(extension(FILES))
    artifact.write(tmp_path / "out")
    assert _bytes(read_artifact(tmp_path / "out")) == _bytes(artifact)
    code = tmp_path / "out" / "index.js"
    code.write_bytes(code.read_bytes() + b" ")
    with pytest.raises(Problem, match="do not match its hash"):
        read_artifact(tmp_path / "out")


def test_every_field_of_the_artifact_schema_is_there(extension):
    document = canonical.decode(canonical.encode(build(extension(FILES)).meta))
    assert document["schema"] == "pi.ext.artifact.v1"
    assert document["extension_id"] == "same"
    assert set(document) >= {
        "schema", "extension_id", "entry_module", "hash", "shim_version", "rewrite_log", "injected_polyfills",
        "flagged_apis", "forbidden_apis", "capabilities_required",
    }  # fmt: skip
    assert {"from", "to", "locations"} == set(document["rewrite_log"][0])
    assert document["capabilities_required"] == ["read"]
    assert document["injected_polyfills"] == ["pi:polyfills/node_globals"]


def test_polyfills_come_first_in_one_order_and_only_those_that_are_needed(extension):
    text = "export default () => [new WebAssembly.Memory({}), fetch('https://a.example/')];"
    artifact = build(extension({"index.ts": text}))
    names = ("pi:polyfills/node_globals", "pi:polyfills/fetch", "pi:polyfills/webassembly")
    assert artifact.meta.injected_polyfills == names
    first = artifact.code.split(b"\n", 1)[0].decode()
    assert first == "".join(f'globalThis.__forestay_modules__("{name}");' for name in names)


def test_a_cached_build_is_found_until_something_it_looked_at_changes(extension, tmp_path, monkeypatch):
    root, cache = extension(FILES), Cache(tmp_path / "cache", Seal(b"key"))
    build(root, cache=cache)
    module = importlib.import_module("forestay.extensions.compiler.build")
    calls = []
    real = module.compile_source
    monkeypatch.setattr(module, "compile_source", lambda found: calls.append(found) or real(found))
    build(root, cache=cache)
    assert calls == []
    (root / "src" / "help.js").write_text("export const help = 2;")  # another file could now be meant by ./help
    build(root, cache=cache)
    assert len(calls) == 1
    (root / "node_modules/dep/index.js").write_text("module.exports = 7;")
    build(root, cache=cache)
    assert len(calls) == 2
    build(root, cache=cache)
    assert len(calls) == 2


@pytest.mark.skipif(assets.npm_command() is None, reason="there is no npm here")
def test_two_folders_and_two_states_of_npms_cache_give_identical_bytes(tmp_path, monkeypatch):
    """A real npm dependency, installed by the command, from an empty cache and from a used one."""
    files = {
        "package.json": json.dumps(
            {
                "name": "same",
                "version": "1.2.3",
                "pi": {"extensions": ["./src/index.ts"]},
                "dependencies": {"dep": "file:./dep-1.0.0.tgz", "registered": "^1.0.0"},
            }
        ),
        **{name: text for name, text in FILES.items() if name.startswith("src/")},
    }
    files["src/index.ts"] = 'import more from "registered";\nvoid more;\n' + files["src/index.ts"]
    packed = {
        name.removeprefix("node_modules/dep/"): text for name, text in FILES.items() if name.startswith("node_modules/")
    }
    registered = {
        "package.json": '{"name": "registered", "version": "1.0.4", "main": "m.cjs"}',
        "m.cjs": "module.exports = { file: __filename, ok: require('node:path').sep };",
    }

    def made(folder, cache):
        root = tmp_path / folder
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (root / "dep-1.0.0.tgz").write_bytes(tarball(packed))
        use(monkeypatch, registry, tmp_path / cache)
        assert install(root).packages == ("dep@1.0.0", "registered@1.0.4")
        return build(root)

    with Registry([registered]) as registry:
        fresh = made("one/deep/down", "cache-a")
        used = made("two", "cache-a")
        other = made("three", "cache-b")
    assert _bytes(fresh) == _bytes(used) == _bytes(other)
    assert b"1.0.4" not in fresh.code and str(tmp_path).encode() not in fresh.code + fresh.source_map
    codes = [compile_module(item.code.decode(), item.meta.entry_module) for item in (fresh, used)]
    assert codes[0] == codes[1]
