"""Sources to one module: every shape of import, and what is refused."""

from __future__ import annotations

import json

import pytest

from forestay.extensions.compiler.build import build
from forestay.extensions.compiler.rewrite import provided_package, virtual_module
from forestay.extensions.compiler.scan.syntax import File
from forestay.kernel import Problem

SAY = "export default (pi: any) => "


@pytest.mark.parametrize(
    ("specifier", "target"),
    [
        *[(f"node:{n}", f"pi:node/{n}") for n in ("fs", "path", "os", "url", "crypto", "child_process", "module")],
        *[(n, f"pi:node/{n}") for n in ("fs", "path", "os", "url", "crypto", "child_process", "module")],
        ("node:fs/promises", "pi:node/fs_promises"),
        ("fs/promises", "pi:node/fs_promises"),
        ("node:sqlite", "pi:node/sqlite"),
        ("@mariozechner/pi-tui", "@mariozechner/pi-tui"),
        ("@earendil-works/pi-ai/oauth", "@earendil-works/pi-ai/oauth"),
    ],
)
def test_rewrite_table(specifier, target):
    assert virtual_module(specifier) == target


@pytest.mark.parametrize(
    "specifier", ["sqlite", "test", "lodash", "./fs", "fs-extra", "@mariozechner/pi-other", "node:nope"]
)
def test_what_is_not_in_the_table_is_left_to_npm(specifier):
    assert virtual_module(specifier) is None


def test_typebox_in_both_spellings_is_the_provided_package():
    assert provided_package("@sinclair/typebox/value") == "typebox/value"
    assert provided_package("typebox") == "typebox"
    assert provided_package("typebox-extra") is None


def test_every_shape_of_import_in_one_extension(extension, run):
    root = extension(
        {
            "index.ts": """
import fs, { existsSync, notThere } from "node:fs";
import * as path from "path";
import Emitter, { once } from "events";
import { Type } from "@sinclair/typebox";
import data from "./data/facts.json";
import { nested } from "./lib/deep/nested";
import dependency from "some-dep";
const common = require("./lib/common.cjs");
enum Colour { Red = 3 }
class Point { constructor(readonly x: number) {} }
const later = await Promise.resolve("awaited");
export default async (pi: any) => {
  const os = await import("node:os");
  pi.say({
    fs: typeof fs.existsSync, named: typeof existsSync, missing: typeof notThere, path: path.join("a", "b"),
    emitter: Emitter.name, once: typeof once, schema: Type.Object({ a: Type.String() }), data, nested, dependency,
    common, colour: Colour.Red, point: new Point(4).x, later, os: os.tmpdir(),
  });
};""",
            "data/facts.json": '{"a": 1}',
            "lib/deep/nested.ts": 'import { up } from "../up.js"; export const nested: string = up + "!";',
            "lib/up.ts": 'export const up = "up";',
            "lib/common.cjs": 'const E = require("events"); const { join } = require("path");'
            "module.exports = { join: typeof join, e: E.name, once: typeof E.once };",
            "node_modules/some-dep/package.json": '{"name": "some-dep", "main": "./main.js"}',
            "node_modules/some-dep/main.js": "module.exports = { from: 'npm' };",
        }
    )
    artifact = build(root)
    assert run(artifact)["said"] == [
        {
            "fs": "function",
            "named": "function",
            "missing": "undefined",
            "path": "a/b",
            "emitter": "EventEmitter",
            "once": "function",
            "schema": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
            "data": {"a": 1},
            "nested": "up!",
            "dependency": {"from": "npm"},
            "common": {"join": "function", "e": "EventEmitter", "once": "function"},
            "colour": 3,
            "point": 4,
            "later": "awaited",
            "os": "/t",
        }
    ]
    tree = File("index.js", artifact.code, "js")
    assert tree.find("(import_statement) @i (import) @i (export_statement source: (_)) @i") == []
    assert len(tree.find("(export_statement) @e")) == 1


def test_common_js_entry_and_default_property(extension, run):
    assert run(build(extension({"index.js": "module.exports = (pi) => pi.say(1);"}, "a")))["said"] == [1]
    text = "Object.defineProperty(exports,'__esModule',{value:true});exports.default=(pi)=>pi.say(2);"
    assert run(build(extension({"index.js": text}, "b")))["said"] == [2]


def test_each_file_knows_where_it_lies(extension, run):
    root = extension(
        {
            "src/index.ts": f"""import {{ here }} from "./sub/where";
const common = require("./sub/c.cjs");
const {{ own }} = require("./sub/own.cjs");
{SAY}pi.say([import.meta.url, import.meta.dirname, __filename, here, common, own]);""",
            "src/sub/where.ts": "export const here = { __dirname };",
            "src/sub/c.cjs": "module.exports = __dirname + '|' + __filename;",
            "src/sub/own.cjs": "const __dirname = 'mine'; exports.own = __dirname;",
            "package.json": '{"name": "x", "version": "1.0.0", "pi": {"extensions": ["./src/index.ts"]}}',
        }
    )
    assert run(build(root), "/abs/a b")["said"] == [
        [
            "file:///abs/a%20b/src/index.ts",
            "/abs/a b/src",
            "/abs/a b/src/index.ts",
            {"__dirname": "/abs/a b/src/sub"},
            "/abs/a b/src/sub|/abs/a b/src/sub/c.cjs",
            "mine",
        ]
    ]


def test_a_package_that_is_not_there_fails_when_it_is_reached(extension, run):
    root = extension(
        {
            "index.ts": f"""{SAY}{{
  import("not-there").catch((error) => pi.say([error.code, error.message]));
  try {{ require("nor-this"); }} catch (error) {{ pi.say(error.code); }}
}};"""
        }
    )
    assert run(build(root))["said"] == ["MODULE_NOT_FOUND", ["MODULE_NOT_FOUND", "Cannot find module 'not-there'"]]


def test_a_package_that_the_entry_needs_and_is_not_there_stops_the_build(extension):
    with pytest.raises(Problem) as caught:
        build(extension({"index.ts": 'import a from "not-there";\nexport default () => a();'}))
    assert caught.value.key == "compile_failed"
    assert caught.value.message == 'Could not resolve "not-there".'
    assert caught.value.details["at"] == "index.ts:1:15"


@pytest.mark.parametrize(
    "address", ["https://esm.sh/lodash", "http://x.test/a.js", "data:text/javascript,1", "//x.test/a"]
)
def test_code_is_never_loaded_from_elsewhere(extension, address):
    with pytest.raises(Problem) as caught:
        build(extension({"index.ts": f'import x from "{address}";\nexport default () => x;'}))
    assert caught.value.message == f'The import of "{address}" is refused: code is never loaded from elsewhere.'
    assert caught.value.details["at"] == "index.ts:1:15"


@pytest.mark.parametrize(
    "how", ['import x from "../outside";', 'const x = require("../outside");', 'const x = import("../outside");']
)
def test_an_import_that_leaves_the_folder_is_refused(extension, how):
    extension({"outside.ts": "export default 1;"}, ".")
    with pytest.raises(Problem) as caught:
        build(extension({"index.ts": f"{how}\nexport default () => x;"}))
    assert caught.value.message == (
        "outside.ts is outside the extension's folder; copy it in, or install it as a package."
    )
    assert caught.value.details["line"] == 1


def test_a_link_that_leaves_the_folder_is_refused(extension, tmp_path):
    extension({"secret.ts": "export default 1;"}, "elsewhere")
    root = extension({"index.ts": 'import x from "./linked";\nexport default () => x;'})
    (root / "linked.ts").symlink_to(tmp_path / "elsewhere" / "secret.ts")
    with pytest.raises(Problem, match=r"outside the extension's folder"):
        build(root)


def test_a_native_addon_is_refused_where_it_is_imported_and_fails_where_it_is_required(extension, run):
    with pytest.raises(Problem, match=r"native addons cannot run in the sandbox"):
        build(extension({"index.ts": 'import x from "./a.node";\nexport default () => x;', "a.node": ""}, "one"))
    lazy = f'{SAY}{{ try {{ require("./a.node") }} catch (error) {{ pi.say(error.code) }} }}'
    assert run(build(extension({"index.ts": lazy, "a.node": ""}, "two")))["said"] == ["MODULE_NOT_FOUND"]


def test_a_mistake_in_the_source_is_told_with_its_place(extension):
    with pytest.raises(Problem) as caught:
        build(extension({"index.ts": "export default () => {\n  const = 4;\n};"}))
    assert (caught.value.key, caught.value.details["at"]) == ("compile_failed", "index.ts:2:9")
    assert caught.value.details["source_line"] == "  const = 4;"


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("export const a = 1;", "The entry has no default export.", "index.ts:1:1"),
        ("\nexport default class A {}", "The entry's default export is a class, not a function.", "index.ts:2:1"),
        ("export default { a: 1 };", "The entry's default export is an object, not a function.", "index.ts:1:1"),
        ("const a = 'x';\nexport default a;", "The entry's default export is a value, not a function.", "index.ts:2:1"),
        (
            "class B {}\nexport { B as default };",
            "The entry's default export is a class, not a function.",
            "index.ts:2:1",
        ),
        ("console.log(1);", "The entry has no default export.", "index.ts:1:1"),
    ],
)
def test_the_entry_must_export_a_default_function(extension, text, message, at):
    with pytest.raises(Problem) as caught:
        build(extension({"index.ts": text}))
    assert (caught.value.message, caught.value.details["at"]) == (message, at)


@pytest.mark.parametrize(
    "text",
    [
        "export default function (pi) {}",
        "export default async (pi) => {}",
        "const f = (pi) => {};\nexport default f;",
        "function f() {}\nexport { f as default };",
        "export default make();\nfunction make() { return () => {} }",
        'export { default } from "./other";',
        "export default ((pi) => {}) satisfies Function;",
    ],
)
def test_entries_that_may_be_functions_compile(extension, text):
    files = {"index.ts": text, "other.ts": "export default () => {};"}
    assert build(extension(files)).meta.entry_module == "index.js"


def test_the_rewrite_log_says_what_became_what_and_where(extension):
    text = 'import fs from "node:fs";\nimport { join } from "path";\nexport default () => [fs, join];\n'
    log = {item.source: item for item in build(extension({"index.ts": text})).meta.rewrite_log}
    assert log["node:fs"].target == "pi:node/fs"
    assert [str(place) for place in log["node:fs"].locations] == ["index.ts:1:16"]
    assert [str(place) for place in log["path"].locations] == ["index.ts:2:22"]


def test_a_package_with_several_extensions_wants_one_named(extension):
    root = extension(
        {
            "package.json": '{"name": "two", "version": "2.0.0", "pi": {"extensions": ["./a.ts", "./b"]}}',
            "a.ts": "export default () => {};",
            "b/index.ts": "export default () => {};",
        }
    )
    with pytest.raises(Problem) as caught:
        build(root)
    assert caught.value.details["entries"] == ["a.ts", "b/index.ts"]
    assert [build(root / name).meta.extension_id for name in ("a.ts", "b/index.ts")] == ["two.a", "two.b"]


SUBPATHS = {
    "without extension": ({"#src/*": "./src/*"}, "#src/deep/thing", "src/deep/thing.ts"),
    "a js that is a ts": ({"#src/*.js": "./src/*.js"}, "#src/thing.js", "src/thing.ts"),
    "a folder": ({"#tools": "./src/tools"}, "#tools", "src/tools/index.ts"),
    "by condition": ({"#one": {"browser": "./no.ts", "default": "./src/one"}}, "#one", "src/one.ts"),
    "the longest pattern": ({"#a/*": "./no/*", "#a/b/*": "./src/*"}, "#a/b/thing", "src/thing.ts"),
    "to the letter": ({"#exact": "./src/exact.ts"}, "#exact", "src/exact.ts"),
}


@pytest.mark.parametrize("kind", SUBPATHS)
def test_a_subpath_import_is_found_as_the_real_loader_finds_it(extension, kind):
    table, specifier, file = SUBPATHS[kind]
    root = extension(
        {
            "index.ts": f'import {{ word }} from "{specifier}";\nexport default (pi: any) => pi.setLabel(word);',
            file: 'export const word: string = "found it";',
            "package.json": json.dumps({"name": "x", "version": "1.0.0", "imports": table}),
        }
    )
    assert b"found it" in build(root).code


def test_a_subpath_import_does_not_leave_the_folder(extension):
    root = extension(
        {
            "index.ts": 'import { word } from "#up/secret";\nexport default () => word;',
            "package.json": json.dumps({"name": "x", "version": "1.0.0", "imports": {"#up/*": "./../*"}}),
        }
    )
    (root.parent / "secret.ts").write_text("export const word = 1;")
    with pytest.raises(Problem) as caught:
        build(root)
    assert caught.value.key == "compile_failed"
