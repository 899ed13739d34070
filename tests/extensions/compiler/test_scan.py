"""Forbidden and flagged APIs (Pi §2A.4): each forbidden one in six disguises and more, exact message and place."""

from __future__ import annotations

import pytest

from forestay.extensions.api_table import NODE_MODULES
from forestay.extensions.compiler.build import build
from forestay.extensions.compiler.scan import scan_text
from forestay.kernel import Problem

FORBIDDEN_MODULES = {name: row.forbidden for name, row in NODE_MODULES.items() if row.forbidden}

# {m} is the module's name, {a} and {b} its two halves.
MODULE_DISGUISES = {
    "plain import": ('import x from "node:{m}";\nexport default () => x;', "1:15"),
    "without prefix": ('const x = require("{m}");\nexport default () => x;', "1:19"),
    "in two halves": ('const x = require("{a}" + "{b}");\nexport default () => x;', "1:19"),
    "alias of require": ("const load = require;\nconst x = load(`node:{m}`);\nexport default () => x;", "2:16"),
    "re-exported": ('export * as hidden from "{m}";\nexport default () => 1;', "1:25"),
    "import()": ('export default async () => await import("node:" + "{m}");', "1:41"),
    "createRequire": (
        'import {{ createRequire as make }} from "node:module";\nexport default () => make(import.meta.url)("{m}");',
        "2:44",
    ),
    "getBuiltinModule": ('export default () => process["getBuiltin" + "Module"]("{m}");', "1:55"),
    "globalThis[...]": ('export default () => (globalThis as any)["require"]("{m}");', "1:53"),
    "escaped": ('const x = require("\\x{h}{rest}");\nexport default () => x;', "1:19"),
}
PROCESS_DISGUISES = {
    "plain": ("export default () => process.{m}('x');", "1:22"),
    "computed": ("export default () => process['{a}' + '{b}']('x');", "1:22"),
    "alias": ("const p = process;\nexport default () => p.{m}('x');", "2:22"),
    "destructured": ("const {{ {m}: f }} = process;\nexport default () => f('x');", "1:9"),
    "globalThis[...]": ("export default () => globalThis['process'].{m}('x');", "1:22"),
    "imported": ('import proc from "node:process";\nexport default () => proc.{m}("x");', "2:22"),
    "Reflect.get": ("export default () => Reflect.get(process, '{m}')('x');", "1:22"),
    "optional, asserted": ("export default () => (process as any)?.{m}?.('x');", "1:22"),
    "in a string that is evaluated": ("export default () => eval(\"process.{m}('x')\");", "1:22"),
}
EVAL_DISGUISES = {
    "plain": ("export default (x: string) => eval('a' + x);", "1:31"),
    "indirect": ("export default (x: string) => (0, eval)(`a${{x}}`);", "1:31"),
    "alias": ("const run = eval;\nexport default (x: string) => run('a' + x);", "2:31"),
    "globalThis[...]": ("export default (x: string) => globalThis['ev' + 'al']('a' + x);", "1:31"),
    "destructured": ("const {{ eval: run }} = globalThis;\nexport default (x: string) => run('a' + x);", "2:31"),
    "call": ("export default (x: string) => eval.call(null, 'a' + x);", "1:31"),
    "Reflect.apply": ("export default (x: string) => Reflect.apply(eval, null, ['a' + x]);", "1:31"),
    "held in an object": ("const o = {{ run: eval }};\nexport default (x: string) => o.run('a' + x);", "2:31"),
    "returned": ("export default (x: string) => (() => eval)()('a' + x);", "1:31"),
    "decoded": ("export default (x: string) => eval(atob(x));", "1:31"),
    "decoded by Buffer": ("export default (x: string) => eval(Buffer.from(x, 'base64').toString());", "1:31"),
    "a name for the built string": ("export default (x: string) => {{ const c = 'a' + x; return eval(c); }};", "1:59"),
}


def _forbidden(extension, text):
    with pytest.raises(Problem) as caught:
        build(extension({"index.ts": text}))
    assert caught.value.key == "api_forbidden"
    return caught.value


@pytest.mark.parametrize("disguise", MODULE_DISGUISES)
@pytest.mark.parametrize("module", [name for name in FORBIDDEN_MODULES if "/" not in name])
def test_a_forbidden_module_stops_the_build(extension, module, disguise):
    template, at = MODULE_DISGUISES[disguise]
    halves = {"a": module[:1], "b": module[1:], "h": f"{ord(module[0]):02x}", "rest": module[1:]}
    problem = _forbidden(extension, template.format(m=module, **halves))
    assert problem.message == f"node:{module} is forbidden: {FORBIDDEN_MODULES[module]}."
    assert problem.details["at"] == f"index.ts:{at}"


@pytest.mark.parametrize("disguise", PROCESS_DISGUISES)
@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("binding", "process.binding() is forbidden: Native module access."),
        ("dlopen", "process.dlopen() is forbidden: Native addon loading."),
    ],
)
def test_a_forbidden_member_of_process_stops_the_build(extension, member, message, disguise):
    template, at = PROCESS_DISGUISES[disguise]
    problem = _forbidden(extension, template.format(m=member, a=member[:3], b=member[3:]))
    assert (problem.message, problem.details["at"]) == (message, f"index.ts:{at}")


@pytest.mark.parametrize("disguise", EVAL_DISGUISES)
def test_eval_of_a_dynamic_string_stops_the_build(extension, disguise):
    template, at = EVAL_DISGUISES[disguise]
    problem = _forbidden(extension, template.format())
    assert problem.message == "eval() with a dynamic string is forbidden: Arbitrary code execution."
    assert problem.details["at"] == f"index.ts:{at}"


ACROSS = {
    "eval": ("export const run = eval;", "run('a' + x)", "eval() with a dynamic string", "2:31"),
    "process": ('export { default as run } from "node:process";', "run.binding(x)", "process.binding()", "2:31"),
    "all of process": ('export * from "node:process";', "run(x)", "process.binding()", "2:31"),
}


@pytest.mark.parametrize("what", ACROSS)
def test_names_are_followed_from_one_file_to_another(extension, what):
    exported, used, api, at = ACROSS[what]
    name = "binding as run" if what == "all of process" else "run"
    text = f'import {{ {name} }} from "./other";\nexport default (x: string) => {used};'
    with pytest.raises(Problem) as caught:
        build(extension({"index.ts": text, "other.ts": exported}))
    assert [use["api"] for use in caught.value.details["uses"]] == [api]
    assert f"index.ts:{at}" in caught.value.details["uses"][0]["locations"]


def test_a_dependency_is_scanned_like_the_rest(extension):
    root = extension(
        {
            "index.ts": 'import dep from "dep";\nexport default () => dep();',
            "node_modules/dep/package.json": '{"name": "dep", "version": "1.0.0"}',
            "node_modules/dep/index.js": 'const vm = require("vm");\nmodule.exports = () => vm;',
        }
    )
    with pytest.raises(Problem) as caught:
        build(root)
    assert caught.value.message == "node:vm is forbidden: Arbitrary code execution."
    assert caught.value.details["at"] == "node_modules/dep/index.js:1:20"


FLAGGED = {
    "new Function('a', 'return a')": "new Function()",
    "Function('return 1')()": "new Function()",
    "[].constructor.constructor('return 1')()": "new Function()",
    "(() => {}).constructor('x')": "new Function()",
    "Object.getPrototypeOf(async () => {}).constructor('x')": "new Function()",
    "Reflect.construct(Function, ['x'])": "new Function()",
    "eval(x)": "eval(variable)",
    "[x].map(eval)": "eval(variable)",
    "setTimeout('x()', 1)": "setTimeout(string)",
    "globalThis.setInterval('x' + x, 1)": "setInterval(string)",
    "new Proxy({}, {})": "Proxy",
    "Reflect.ownKeys({})": "Reflect",
    "Object.defineProperty(Array.prototype, 'x', {})": "Object.defineProperty on a builtin",
    "require(x)": "import of a computed name",
}


@pytest.mark.parametrize("text", FLAGGED)
def test_a_flagged_api_is_recorded_and_stops_only_a_strict_build(extension, text):
    root = extension({"index.ts": f"export default (x: any) => {text};"})
    meta = build(root).meta
    assert meta.verdict == "warning"
    use = next(use for use in meta.flagged_apis if use.api == FLAGGED[text])
    assert use.evidence_hash.startswith("sha256:")
    assert use.locations[0].file == "index.ts"
    with pytest.raises(Problem) as caught:
        build(root, strict=True)
    assert caught.value.key == "api_forbidden"


@pytest.mark.parametrize(
    "text",
    [
        "function f(require, process) { require('vm'); process.binding(1); }",
        "import type { Context } from 'node:vm';",
        "const evaluate = (x) => x; evaluate('a' + b);",
        "class A { constructor() { this.constructor.name; } }",
        "const vm = { vm: 'vm', net: 1 }; vm.net;",
        "setTimeout(() => {}, 1);",
        "eval('1 + 1');",
        "/eval('a' + x)/.exec('eval(a + b)');",
        "Object.defineProperty(target, 'x', {});",
        "shell.binding('x');",
        "const o = { eval(x) { return x; } }; o.eval('a' + b);",
    ],
)
def test_what_only_looks_like_it_is_clean(text):
    assert scan_text("a.ts", text.encode(), "ts") == []


def test_an_import_that_is_only_a_type_is_clean(extension):
    text = 'import { Context } from "node:vm";\nexport default (x: Context) => x;'
    assert build(extension({"index.ts": text})).meta.verdict == "compatible"


def test_what_does_not_parse_is_a_finding():
    assert [f.rule.api for f in scan_text("a.js", b"const x = ;", "js")] == ["syntax"]


def test_forbidden_apis_can_be_recorded_without_stopping(extension):
    root = extension({"index.ts": 'import net from "net";\nexport default () => net;'})
    meta = build(root, allow_forbidden=True).meta
    assert (meta.verdict, [use.api for use in meta.forbidden_apis]) == ("blocked", ["node:net"])
