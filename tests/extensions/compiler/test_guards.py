"""Feature detection in dependencies is a warning with evidence; a use, and anything in own sources, stays forbidden."""

from __future__ import annotations

import asyncio

import pytest

from forestay.extensions.compiler.build import build, compile_source
from forestay.extensions.compiler.source import source
from forestay.kernel import Problem

ENTRY = 'import found from "dep";\nexport default (pi) => { pi.registerCommand(String(found), { handler() {} }); };'
PACKAGE = '{"name": "dep", "version": "1.0.0", "main": "i.js"}'

TESTED = {
    "and": "const p = globalThis.process;\nmodule.exports = p && p.binding && p.binding('util');",
    "in a function": "function f() { const p = process; return p.binding && p.binding('x'); }\nmodule.exports = f();",
    "ternary": "module.exports = process.binding ? process.binding('util') : 'none';",
    "if": "if (process.binding) { module.exports = process.binding('util'); }",
    "typeof": "module.exports = typeof process.dlopen === 'function' && process.dlopen({}, 'x');",
    "test alone": "module.exports = !process.binding;",
}
NOT_TESTED = {
    "bare": "module.exports = process.binding('util');",
    "another member": "module.exports = process.env && process.binding('util');",
    "another object": "const o = {binding: 1};\nmodule.exports = o.binding && process.binding('util');",
    "or": "module.exports = process.binding || process.binding('util');",
    "handed on": "module.exports = process && process.binding;",
    "else": "module.exports = process.binding ? 1 : process.binding('util');",
    "in a callback": "module.exports = process.binding && (() => process.binding('util'));",
    "after it": "if (process.binding) {}\nmodule.exports = process.binding('util');",
}
CAUGHT = {
    "require": "try { module.exports = require('node:vm'); } catch (e) { module.exports = 'fallback'; }",
    "no name": "let v = 'fallback';\ntry { v = require('worker_threads').Worker; } catch {}\nmodule.exports = v;",
    "import()": "module.exports = 'later';\n(async () => { try { await import('node:net'); } catch { } })();",
}
NOT_CAUGHT = {
    "bare": "module.exports = require('node:vm');",
    "finally only": "try { module.exports = require('vm'); } finally { }",
    "in the catch": "try { null.x; } catch { module.exports = require('vm'); }",
    "in a function": "try { module.exports = () => require('vm'); } catch { }",
    "import() not awaited": "try { import('node:vm'); } catch { }",
}


def _dependency(extension, text):
    files = {"index.ts": ENTRY, "node_modules/dep/package.json": PACKAGE, "node_modules/dep/i.js": text}
    return extension(files)


def _is_flagged(meta, api):
    return [use for use in meta.flagged_apis if use.api == api and use.message.endswith("goes on without it.")]


@pytest.mark.parametrize("case", TESTED)
def test_a_member_behind_its_own_test_is_a_warning_in_a_dependency(extension, case):
    artifact = build(_dependency(extension, TESTED[case]))
    api = "process.dlopen()" if "dlopen" in TESTED[case] else "process.binding()"
    (use,) = _is_flagged(artifact.meta, api)
    assert artifact.meta.verdict == "warning"
    assert use.message == f"{api} is flagged: A dependency asks whether it is there, and goes on without it."
    assert {place.file for place in use.locations} == {"node_modules/dep/i.js"}
    assert use.evidence_hash.startswith("sha256:")


@pytest.mark.parametrize("case", NOT_TESTED)
def test_a_member_without_that_test_is_forbidden_in_a_dependency(extension, case):
    with pytest.raises(Problem, match=r"process\.binding\(\) is forbidden: Native module access\."):
        build(_dependency(extension, NOT_TESTED[case]))


@pytest.mark.parametrize("case", CAUGHT)
def test_a_module_whose_absence_is_caught_is_a_warning_in_a_dependency(extension, case):
    meta = build(_dependency(extension, CAUGHT[case])).meta
    assert meta.verdict == "warning"
    assert any(use.message.endswith("goes on without it.") for use in meta.flagged_apis)


@pytest.mark.parametrize("case", NOT_CAUGHT)
def test_a_module_that_is_needed_is_forbidden_in_a_dependency(extension, case):
    with pytest.raises(Problem, match=r"node:vm is forbidden: Arbitrary code execution\."):
        build(_dependency(extension, NOT_CAUGHT[case]))


@pytest.mark.parametrize("text", [*TESTED.values(), *CAUGHT.values()])
def test_the_same_in_own_sources_stays_forbidden(extension, text):
    root = extension({"index.ts": f"const module = {{ exports: null }};\n{text}\nexport default () => module.exports;"})
    with pytest.raises(Problem, match="is forbidden"):
        build(root)


def test_strict_stops_at_the_warning(extension):
    with pytest.raises(Problem):
        build(_dependency(extension, TESTED["and"]), strict=True)


def test_the_fallback_runs_in_the_sandbox(extension):
    from forestay.extensions.conform.differential import registrations_of

    def command(text, folder):
        files = {"index.ts": ENTRY, "node_modules/dep/package.json": PACKAGE, "node_modules/dep/i.js": text}
        artifact, _ = compile_source(source(extension(files, folder)))
        return asyncio.run(registrations_of(artifact))["commands"][0]["name"]

    assert command(CAUGHT["require"], "a") == "fallback"
    assert command(TESTED["and"], "b") == "undefined"
    assert command(TESTED["ternary"], "c") == "none"


PURE = {
    "default": 'import net from "node:net";\nexport default (pi) => pi.say(net.isIP("::1"), net.isIPv4("1.2.3.4"));',
    "namespace": 'import * as n from "net";\nexport default () => new n.BlockList();',
    "named": 'import { isIP as is, type Socket } from "node:net";\nexport default (s: Socket) => is("x");',
    "required": 'const net = require("net");\nexport default () => net.isIPv6("::");',
    "taken apart": 'const { isIP } = require("net");\nexport default () => isIP("::");',
    "a type of it": 'import net from "node:net";\nexport default (s: net.Socket) => net.isIP("x");',
}
NOT_PURE = {
    "another member": 'import net from "node:net";\nexport default () => [net.isIP("x"), net.connect(1)];',
    "handed on": 'import net from "node:net";\nexport default (f) => f(net, net.isIP("x"));',
    "in an object": 'import net from "node:net";\nexport default () => ({ net });',
    "computed": 'import net from "node:net";\nexport default (k) => net[k];',
    "another name": 'import { isIP, createConnection } from "node:net";\nexport default () => isIP("x");',
    "the rest": 'const { isIP, ...rest } = require("net");\nexport default () => rest;',
    "exported": 'import net from "node:net";\nexport { net };\nexport default () => net.isIP("x");',
    "re-exported": 'export { isIP } from "node:net";\nexport default () => 1;',
    "for its effect": 'import "node:net";\nexport default () => 1;',
    "another module": 'import tls from "node:tls";\nexport default () => tls.isIP("x");',
}


@pytest.mark.parametrize("case", PURE)
def test_address_helpers_of_net_are_no_sockets(extension, case):
    artifact = build(extension({"index.ts": PURE[case]}))
    (use,) = [use for use in artifact.meta.flagged_apis if use.api == "node:net"]
    assert use.message == "node:net is flagged: Only its members that compute are there."
    assert {item.target for item in artifact.meta.rewrite_log} == {"pi:node/net_computing"}


@pytest.mark.parametrize("case", NOT_PURE)
def test_any_other_use_of_net_is_forbidden(extension, case):
    with pytest.raises(Problem, match=r"node:(net|tls) is forbidden: Bypasses HTTP policy\."):
        build(extension({"index.ts": NOT_PURE[case]}))
