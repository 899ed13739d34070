"""An error in a nested TypeScript module is told at its place: through compile, bytecode and snapshot."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from forestay import assets
from forestay.extensions.compiler.artifact import read_artifact
from forestay.extensions.compiler.build import build
from forestay.extensions.compiler.cache import Cache
from forestay.extensions.conform.host import Host, Place
from forestay.extensions.engine.bytecode import KeptBytecode
from forestay.extensions.engine.pool import Pool
from forestay.kernel import Seal

FILES = {
    "package.json": '{"name": "nested", "version": "1.0.0", "pi": {"extensions": ["./src/index.ts"]}}',
    "src/index.ts": 'import { outer } from "./lib/outer";\nimport each from "dep";\n\n'
    "export default (pi: any) => {\n  pi.registerTool({\n    name: 'go', label: 'Go', description: 'Goes',\n"
    "    parameters: { type: 'object', properties: {} },\n"
    "    execute: async () => each([3], (value: number) => outer({ value })),\n  });\n};\n",
    "src/lib/outer.ts": "interface Input {\n  value: number;\n}\n\nexport function outer(input: Input): never {\n"
    "  return inner(input.value);\n}\n\nfunction inner(value: number): never {\n"
    "    if (value > 2) throw new RangeError('bad');\n}\n",
    "node_modules/dep/package.json": '{"name": "dep", "version": "1.0.0", "main": "i.js"}',
    "node_modules/dep/i.js": "'use strict';\n"
    "module.exports = function each(list, f) { return list.map((x) => f(x)); };\n",
}


DEEP = {
    **FILES,
    "src/index.ts": FILES["src/index.ts"].replace(
        "  });\n};",
        "  });\n  pi.registerTool({ name: 'deep', label: 'D', description: 'D',\n    parameters: { type: 'object' },\n"
        "    execute: async () => each(null as any, () => 1) });\n};",
    ),
}


async def _thrown(place, artifact, tool, **options):
    async with Host(place, artifact, **options) as host:
        await host.extension.load()
        return await host.extension.call_tool(tool, {})


def _extension(tmp_path):
    root = tmp_path / "ext"
    for name, text in DEEP.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def _place_of(text, needle):
    """Line and column of `needle`, counted from 1."""
    before = text[: text.index(needle)]
    return f"{before.count(chr(10)) + 1}:{len(before) - (before.rfind(chr(10)) + 1) + 1}"


def _check(outcome):
    assert outcome.is_error
    assert outcome.content == [{"type": "text", "text": "bad"}]
    details = outcome.problem["details"]
    source = FILES["src/lib/outer.ts"]
    assert str(details["at"]) == f"src/lib/outer.ts:{_place_of(source, 'new RangeError')}" == "src/lib/outer.ts:10:26"
    stack = [str(line) for line in details["stack"]]
    assert any(f"src/lib/outer.ts:{_place_of(source, 'inner(input')}" in line for line in stack), stack
    assert any(f"src/index.ts:{_place_of(FILES['src/index.ts'], 'outer({')}" in line for line in stack), stack
    assert any(f"src/index.ts:{_place_of(FILES['src/index.ts'], 'each([')}" in line for line in stack), stack
    dependency = FILES["node_modules/dep/i.js"]
    assert any(f"node_modules/dep/i.js:{_place_of(dependency, 'f(x)')}" in line for line in stack), stack
    assert any(f"node_modules/dep/i.js:{_place_of(dependency, 'map(')}" in line for line in stack), stack


def test_the_place_is_the_same_cold_and_from_a_snapshot(tmp_path):
    artifact = build(_extension(tmp_path))

    async def run():
        pool = Pool()
        return [await _thrown(Place(tmp_path / str(number)), artifact, "go", pool=pool) for number in range(2)]

    for outcome in asyncio.run(run()):
        _check(outcome)


def test_the_place_is_the_same_through_the_cache_of_artifacts_and_the_cache_of_bytecode(tmp_path):
    root, cache = _extension(tmp_path), Cache(tmp_path / "cache", Seal(b"key"))
    kept = KeptBytecode(tmp_path / "bytecode", cache.seal)
    build(root, cache=cache)
    artifact = cache.find(root)
    assert artifact is not None and artifact.bytecode is None

    async def run():
        return [
            await _thrown(Place(tmp_path / str(number)), artifact, "go", bytecode_cache=kept) for number in range(2)
        ]

    first, second = asyncio.run(run())
    _check(first)
    _check(second)
    (file,) = kept.folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])  # cut short: it is made again
    _check(asyncio.run(_thrown(Place(tmp_path / "third"), artifact, "go", bytecode_cache=kept)))
    assert file.read_bytes() == whole


def test_an_error_inside_the_dependency_is_told_at_its_own_place(tmp_path):
    artifact = build(_extension(tmp_path))
    outcome = asyncio.run(_thrown(Place(tmp_path / "p"), artifact, "deep"))
    at = str(outcome.problem["details"]["at"])
    line, column = _place_of(FILES["node_modules/dep/i.js"], "list.map").split(":")
    assert at.startswith(f"node_modules/dep/i.js:{line}:"), at
    assert 0 <= int(at.rsplit(":", 1)[1]) - int(column) <= len("list."), at


def test_bytecode_of_an_artifact_folder_is_never_taken(tmp_path):
    artifact = build(_extension(tmp_path))
    artifact.write(tmp_path / "out")
    (tmp_path / "out" / "index.qbc").write_bytes(b"not bytecode at all")
    assert read_artifact(tmp_path / "out").bytecode is None


LAYOUTS = {
    "over several lines": ("throw new TypeError(\n    `bad ${\n      value\n    }`,\n  );", "new TypeError"),
    "a class of its own": ("class Odd extends Error {}\n  throw new Odd('bad' + value);", "new Odd"),
    "a class with a constructor": (
        "class Odd extends Error { constructor(m) { super(m + '!'); this.m = m; } }\n  throw new Odd('bad' + value);",
        "new Odd",
    ),
    "two classes deep": (
        "class A extends Error { constructor(m) { super(m); } }\n"
        "  class B extends A { constructor(m) { super(m + value); } }\n"
        "  throw new B('bad');",
        "new B",
    ),
    "inside another constructor": (
        "class Thing { constructor(v) { throw new Error('bad' + v); } }\n  return new Thing(value);",
        "new Error",
    ),
    "made before it is thrown": ("const error = new Error('b' + String(value));\n  throw error;", "new Error"),
    "with wide letters before": ("const s = 'äöü – 漢字'; throw new Error(s + value);", "new Error"),
    "in an argument": ("String([value].map((x) => { throw new Error(`bad ${x}`); }));", "new Error"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_place_is_where_node_tells_it_however_it_is_written(tmp_path, layout):
    """The same file in Node gives the same line and column."""
    text, needle = LAYOUTS[layout]
    module = f"export function fail(value) {{\n  {text}\n}}\n"
    root = tmp_path / "ext"
    (root / "lib").mkdir(parents=True)
    (root / "lib" / "fail.mjs").write_text(module)
    (root / "index.ts").write_text(
        'import { fail } from "./lib/fail.mjs";\nexport default (pi: any) => {\n  pi.registerTool({ name: "go",'
        ' label: "g", description: "d", parameters: { type: "object" }, execute: async () => fail(3) });\n};\n'
    )
    outcome = asyncio.run(_thrown(Place(tmp_path / "p"), build(root), "go"))
    assert str(outcome.problem["details"]["at"]) == f"lib/fail.mjs:{_place_of(module, needle)}"
    there = json.dumps((root / "lib" / "fail.mjs").as_uri())
    script = f"import {{ fail }} from {there}; try {{ fail(3) }} catch (e) {{ console.log(e.stack) }}"
    node = [assets.node_command(), "--input-type=module", "-e", script]
    told = subprocess.run(node, capture_output=True, text=True, check=True).stdout
    assert f"lib/fail.mjs:{_place_of(module, needle)}" in told
