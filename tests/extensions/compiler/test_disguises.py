"""More disguises of the forbidden APIs (Pi §2A.4): each is forbidden with the exact message, or at least flagged."""

from __future__ import annotations

import base64

import pytest

from forestay.extensions.api_table import NODE_MODULES
from forestay.extensions.compiler.scan import scan_text

FORBIDDEN_MODULES = {name: row.forbidden for name, row in NODE_MODULES.items() if row.forbidden}

MODULES = [name for name in FORBIDDEN_MODULES if "/" not in name]
LOADS = {
    "tagged template require": "const x = require`«m»`;",
    "import attributes": "import x from 'node:«m»' with { type: 'json' };",
    "import attributes dynamic": "import('node:«m»', { with: { type: 'x' } });",
    "export named": "export { runInThisContext } from '«m»';",
    "side effect import": "import '«m»';",
    "import equals": "import loaded = require('«m»');",
    "Reflect.apply require": "Reflect.apply(require, null, ['«m»']);",
    "require.call": "require.call(null, '«m»');",
    "require.apply": "require.apply(null, ['«m»']);",
    "require.bind": "require.bind(null)('«m»');",
    "bind with arg": "require.bind(null,'«m»')();",
    "comma": "(0, require)('«m»');",
    "optional call": "require?.('«m»');",
    "module.require": "module.require('«m»');",
    "module['require']": "module['req'+'uire']('«m»');",
    "require.main.require": "require.main.require('«m»');",
    "unicode ident": "r\\u0065quire('«m»');",
    "unicode ident braces": "r\\u{65}quire('«m»');",
    "unicode member": "process.getB\\u0075iltinModule('«m»');",
    "array join": "require(['«head»','«tail»'].join(''));",
    "template": "require(`«head»${'«tail»'}`);",
    "replace": "require('«head»X«tail»'.replace('X',''));",
    "slice": "require('x«m»'.slice(1));",
    "substring": "require('x«m»x'.substring(1,«end»));",
    "reverse": "require('«reversed»'.split('').reverse().join(''));",
    "spread reverse": "require([...'«reversed»'].reverse().join(''));",
    "fromCharCode": "require(String.fromCharCode(«codes»));",
    "fromCharCode spread": "require(String.fromCharCode(...[«codes»]));",
    "atob": "require(atob('«b64»'));",
    "Buffer base64": "require(Buffer.from('«b64»','base64').toString());",
    "Buffer hex": "require(Buffer.from('«hex»','hex').toString());",
    "Buffer hex utf8": "require(Buffer.from('«hex»','hex').toString('utf8'));",
    "JSON.parse string": "require(JSON.parse('\"«m»\"'));",
    "JSON.parse object": 'const c = JSON.parse(\'{"m":"«m»"}\'); require(c.m);',
    "decodeURIComponent": "require(decodeURIComponent('%«code»«tail»'));",
    "String.raw": "require(String.raw`«m»`);",
    "const in object": "const c = {n:'«m»'}; require(c.n);",
    "const in array": "const c = ['«m»']; require(c[0]);",
    "destructured const": "const {n} = {n:'«m»'}; require(n);",
    "destruct default": "const {n='«m»'} = {}; require(n);",
    "computed key destruct": "const k='getBuiltinModule'; const {[k]: g} = process; g('«m»');",
    "class static": "class A { static m = '«m»'; static { require(A.m); } }",
    "class static prop load": "class A { static load = require; } A.load('«m»');",
    "class field": "class A { load = require; go(){ return this.load('«m»'); } }",
    "getter obj": "const o = { get r(){ return require; } }; o.r('«m»');",
    "assigned prop": "const o = {}; o.r = require; o.r('«m»');",
    "Map": "const m = new Map([['r', require]]); m.get('r')('«m»');",
    "array at": "[require].at(0)('«m»');",
    "array destruct": "const [r] = [require]; r('«m»');",
    "find/pop": "[require].pop()('«m»');",
    "param default": "function f(r = require){ return r('«m»'); } f();",
    "iife param": "((r) => r('«m»'))(require);",
    "function param": "function f(r){ return r('«m»'); } f(require);",
    "iife name param": "((n) => require(n))('«m»');",
    "map call": "['«m»'].map(require);",
    "forEach": "['«m»'].forEach(n => require(n));",
    "for of": "for (const n of ['«m»']) require(n);",
    "ternary": "(x ? require : null)('«m»');",
    "logical": "(require || 0)('«m»');",
    "assign op": "let r; r ??= require; r('«m»');",
    "let reassign": "let n='a'; n='«m»'; require(n);",
    "new class getter static": "class A { static get r(){return require;} } A.r('«m»');",
    "generator": "function* g(){ yield require; } g().next().value('«m»');",
    "async": "(async()=>{ (await require)('«m»'); })();",
    "Proxy": "new Proxy(require, {})('«m»');",
    "Object.values": "Object.values({require})[0]('«m»');",
    "Object.assign": "Object.assign({}, {require}).require('«m»');",
    "spread obj": "({...{require}}).require('«m»');",
    "Function this": "Function('return require')()('«m»');",
    "Function body": "new Function('return require(\"«m»\")')();",
    "GeneratorFunction": "Object.getPrototypeOf(function*(){}).constructor('require(\"«m»\")')().next();",
    "AsyncFunction": "(async()=>{}).constructor('return require(\"«m»\")')();",
    "eval const": "eval('require(\"«m»\")');",
    "setTimeout str": "setTimeout('require(\"«m»\")');",
    "label": "a: { require('«m»'); }",
    "createRequire ns": "import * as m from 'node:module'; m.createRequire(import.meta.url)('«m»');",
    "createRequire default": "import m from 'module'; m.createRequire(import.meta.url)('«m»');",
    "createRequire dynamic": "(await import('node:module')).createRequire(import.meta.url)('«m»');",
    "createRequire then": "import('node:module').then(m => m.createRequire(import.meta.url)('«m»'));",
    "createRequire then destr": "import('node:module').then(({createRequire: c}) => c(import.meta.url)('«m»'));",
    "Module._load": "require('module')._load('«m»');",
    "Module new require": "new (require('module'))('x').require('«m»');",
    "module constructor": "module.constructor._load('«m»');",
    "process.mainModule": "process.mainModule.require('«m»');",
    "global process": "global.process.getBuiltinModule('«m»');",
    "Reflect.get": "Reflect.get(process,'getBuiltinModule')('«m»');",
    "Reflect.get comp": "Reflect.get(process,'getBuiltin'+'Module').call(process,'«m»');",
    "globalThis comp": "globalThis[`proc${'ess'}`].getBuiltinModule('«m»');",
    "self": "self.process.getBuiltinModule('«m»');",
    "destruct globalThis": "const { process: { getBuiltinModule: g } } = globalThis; g('«m»');",
    "param destruct": "(({getBuiltinModule: g}) => g('«m»'))(process);",
    "assign destruct": "let g; ({getBuiltinModule: g} = process); g('«m»');",
    "assign destruct comp": "let g; ({['getBuiltin'+'Module']: g} = process); g('«m»');",
    "rest": "const {...p} = process; p.getBuiltinModule('«m»');",
    "upper": "require('«upper»'.toLowerCase());",
    "at()": "require('«head»'.concat('«tail»'));",
    "padStart": "require('«tail»'.padStart(«length»,'«head»'));",
    "repeat": "require('«head»'.repeat(1)+'«tail»');",
    "charAt": "require('«m»'.charAt(0)+'«tail»');",
    "function returns name": "function n(){ return '«m»'; } require(n());",
    "function body const": "function n(){ const a='«head»'; return a+'«tail»'; } require(n());",
    "with esc string": "require('\\«octal»«tail»');",
    "line cont": "require('«head»\\\n«tail»');",
    "hex u": "require('\\u{«code»}«tail»');",
    "nested tpl": "require(`${`«head»`}«tail»`);",
    "comma spec": "require((0,'«m»'));",
    "iife spec": "require((() => '«m»')());",
    "regex source": "require(/«m»/.source);",
    "unescape": "require(unescape('%«code»«tail»'));",
    "import.meta": "import.meta.require?.('«m»');",
}
PROCESS = {
    "Reflect.get": "Reflect.get(process,'«m»')('x')",
    "Reflect.get computed": "Reflect.get(process,'«head»'+'«tail»')('x')",
    "getOwnPropertyDescriptor": "Object.getOwnPropertyDescriptor(process,'«m»').value('x')",
    "getOwnPropertyDescriptors": "Object.getOwnPropertyDescriptors(process).«m».value('x')",
    "destruct computed": "const {['«head»'+'«tail»']: b} = process; b('x')",
    "destruct var key": "const k='«m»'; const {[k]: b} = process; b('x')",
    "param destruct": "(({«m»}) => «m»('x'))(process)",
    "fn param destruct": "function f({«m»: b}){ b('x'); } f(process);",
    "param whole": "(p => p.«m»('x'))(process)",
    "fn decl param": "function f(p){ p.«m»('x'); } f(process);",
    "assign destruct": "let b; ({«m»: b} = process); b('x');",
    "nested destruct": "const {process:{«m»}} = globalThis; «m»('x')",
    "rest": "const {...p} = process; p.«m»('x')",
    "spread": "({...process}).«m»('x')",
    "Object.assign": "Object.assign({}, process).«m»('x')",
    "Object.create": "Object.create(process).«m»('x')",
    "template key": "process[`«head»${'«tail»'}`]('x')",
    "unicode member": "process.«escaped»('x')",
    "unicode ident": "pr\\u006fcess.«m»('x')",
    "unicode key": "process['«hexed»']('x')",
    "comma": "(0, process).«m»('x')",
    "comma member": "(0, process.«m»)('x')",
    "optional": "process?.«m»?.('x')",
    "optional computed": "process?.['«m»']?.('x')",
    "tagged": "process.«m»`x`",
    "tagged2": "const p=process; p['«m»']`x`",
    "class static": "class A { static p = process; static { A.p.«m»('x'); } }",
    "class static this": "class A { static p = process; static { this.p.«m»('x'); } }",
    "class field": "class A { p = process; go(){ this.p.«m»('x'); } }",
    "private field": "class A { #p = process; go(){ this.#p.«m»('x'); } }",
    "getter": "const o={get p(){return process}}; o.p.«m»('x')",
    "getter block": "const o={get p(){const q=process; return q}}; o.p.«m»('x')",
    "proxy": "new Proxy(process,{}).«m»('x')",
    "assigned prop": "const o={}; o.p=process; o.p.«m»('x')",
    "Map": "new Map([['p',process]]).get('p').«m»('x')",
    "array": "[process][0].«m»('x')",
    "array at": "[process].at(0).«m»('x')",
    "for of": "for (const p of [process]) p.«m»('x')",
    "forEach": "[process].forEach(p => p.«m»('x'))",
    "await": "(await process).«m»('x')",
    "promise then": "Promise.resolve(process).then(p => p.«m»('x'))",
    "generator": "function* g(){ yield process } g().next().value.«m»('x')",
    "ternary": "(a ? process : b).«m»('x')",
    "import ns": "import * as p from 'process'; p.«m»('x')",
    "import named": "import { «m» } from 'process'; «m»('x')",
    "import named unused call": "import { «m» as b } from 'node:process'; export { b };",
    "export named from": "export { «m» } from 'node:process';",
    "require": "require('process').«m»('x')",
    "require destr": "const {«m»} = require('node:process'); «m»('x')",
    "dynamic import": "(await import('node:process')).default.«m»('x')",
    "dyn then": "import('node:process').then(p => p.«m»('x'))",
    "Function return this": "Function('return this')().process.«m»('x')",
    "eval process": "eval('process').«m»('x')",
    "call": "process.«m».call(process,'x')",
    "bind": "process.«m».bind(process)('x')",
    "Reflect.apply": "Reflect.apply(process.«m», process, ['x'])",
    "in guard own": "if ('«m»' in process) process['«m»']('x')",
    "key var loop": "for (const k of ['«m»']) process[k]('x')",
    "JSON key": "process[JSON.parse('\"«m»\"')]('x')",
    "key from obj": "const K={b:'«m»'}; process[K.b]('x')",
    "key atob": "process[atob('«b64»')]('x')",
    "json code": 'eval(JSON.parse(\'{"c":"process.«m»(1)"}\').c)',
    "AsyncFunction": "new (Object.getPrototypeOf(async function(){}).constructor)('process.«m»(1)')()",
    "GeneratorFunction": "const G = (function*(){}).constructor; new G('process.«m»(1)')()",
    "AsyncGen": "const {constructor: G} = async function*(){}; G('process.«m»(1)')()",
    "setTimeout": "setTimeout('process.«m»(1)',0)",
    "getter class": "class A { get p(){ return process } } new A().p.«m»('x')",
    "static getter": "class A { static get p(){ return process } } A.p.«m»('x')",
    "logical assign": "let p; p ||= process; p.«m»('x')",
    "default param": "(function(p = process){ p.«m»('x') })()",
    "arguments": "(function(){ arguments[0].«m»('x') })(process)",
    "rest param": "((...a) => a[0].«m»('x'))(process)",
    "catch": "try { throw process } catch (p) { p.«m»('x') }",
    "label/with": "switch(1){ case 1: process.«m»('x') }",
    "Symbol key": "const o={[Symbol.for('a')]: process}; o[Symbol.for('a')].«m»('x')",
    "computed prop store": "const k='z'; const o={[k]: process}; o.z.«m»('x')",
    "nonnull": "process!.«m»('x')",
    "satisfies": "(process satisfies any).«m»('x')",
    "angle": "(<any>process).«m»('x')",
    "method ref": "const { call } = Function.prototype; call.call(process.«m», process, 'x')",
    "globalThis via frames": "globalThis.globalThis.process.«m»('x')",
}
EVALS = {
    "Reflect.get": "Reflect.get(globalThis,'eval')('a'+x)",
    "Reflect.get computed": "Reflect.get(globalThis,'ev'+'al')('a'+x)",
    "destruct computed": "const {['ev'+'al']: r}=globalThis; r('a'+x)",
    "template": "eval(`a${x}`)",
    "optional": "eval?.('a'+x)",
    "optional mem": "globalThis?.eval?.('a'+x)",
    "comma": "(0,eval)('a'+x)",
    "comma3": "(1,2,eval)('a'+x)",
    "unicode": "\\u0065val('a'+x)",
    "unicode braces": "\\u{65}val('a'+x)",
    "unicode member": "globalThis.\\u0065val('a'+x)",
    "class static": "class A { static r = eval; static { A.r('a'+x) } }",
    "static this": "class A { static r = eval; static { this.r('a'+x) } }",
    "class field": "class A { r = eval; go(x){ return this.r('a'+x) } }",
    "private": "class A { #r = eval; go(x){ return this.#r('a'+x) } }",
    "getter": "const o={get r(){return eval}}; o.r('a'+x)",
    "proxy": "new Proxy(eval,{})('a'+x)",
    "proxy apply": "const p=new Proxy(eval,{apply:(t,s,a)=>t(...a)}); p('a'+x)",
    "spread args": "eval(...['a'+x])",
    "apply": "eval.apply(null,['a'+x])",
    "bind": "eval.bind(null)('a'+x)",
    "bind args": "eval.bind(null,'a'+x)()",
    "Reflect.apply": "Reflect.apply(eval,null,['a'+x])",
    "assigned prop": "const o={}; o.r=eval; o.r('a'+x)",
    "array": "[eval][0]('a'+x)",
    "Map": "new Map([['e',eval]]).get('e')('a'+x)",
    "param": "(e => e('a'+x))(eval)",
    "fn param": "function f(e){return e('a'+x)} f(eval)",
    "concat": "eval('a'.concat(x))",
    "join": "eval(['a',x].join(';'))",
    "replace": "eval('a%'.replace('%',x))",
    "plus assign": "let c='a'; c+=x; eval(c)",
    "String()": "eval(String('a'+x))",
    "toString": "eval(('a'+x).toString())",
    "fn body string": "eval(`(${f.toString()})()`)",
    "call expr": "eval(get())",
    "await": "eval(await get())",
    "ternary": "eval(a ? 'b'+x : 'c')",
    "logical": "eval(x || 'a'+x)",
    "iife": "(() => eval)()('a'+x)",
    "nested iife": "(() => () => eval)()()('a'+x)",
    "let": "let r; r=eval; r('a'+x)",
    "logical assign": "let r; r??=eval; r('a'+x)",
    "shorthand obj": "const o={eval}; o.eval('a'+x)",
    "descriptor": "Object.getOwnPropertyDescriptor(globalThis,'eval').value('a'+x)",
    "descriptors": "Object.getOwnPropertyDescriptors(globalThis).eval.value('a'+x)",
    "default param": "((r=eval) => r('a'+x))()",
    "for of": "for (const r of [eval]) r('a'+x)",
    "window": "window.eval('a'+x)",
    "self": "self['eval']('a'+x)",
    "generator": "function* g(){yield eval} g().next().value('a'+x)",
    "await eval": "(await eval)('a'+x)",
    "Function returns": "Function('return eval')()('a'+x)",
    "call.call": "Function.prototype.call.call(eval, null, 'a'+x)",
    "array map built": "['a'+x].map(eval)",
    "array forEach": "['a'+x].forEach(eval)",
    "promise then": "Promise.resolve('a'+x).then(eval)",
    "tagged": "eval`a${x}`",
    "String.raw": "eval(String.raw`a${x}`)",
    "atob": "eval(atob(y)+x)",
    "paren assign": "let r; (r = eval)('a'+x)",
    "cond callee": "(a ? eval : b)('a'+x)",
    "new": "new Object(eval)('a'+x)",
    "Object(eval)": "Object(eval)('a'+x)",
    "atob only": "eval(atob(y))",
    "Buffer": "eval(Buffer.from(y,'base64').toString())",
}
# What only a run can tell is said to be so.
COMPUTED = {
    "require([118,109].map(c => String.fromCharCode(c)).join(''));": "import of a computed name",
    "let n='v'; n+='m'; require(n);": "import of a computed name",
    "Object.entries(process).find(([k])=>k==='getBuiltinModule')[1]('vm');": "a global by a computed name",
    "enum E { A = 'vm' } require(E.A);": "import of a computed name",
    "const enum E { A = 'vm' } require(E.A);": "import of a computed name",
    "namespace N { export const m='vm'; } require(N.m);": "import of a computed name",
    "require(Symbol('vm').description);": "import of a computed name",
    "import(new URL('node:vm').href);": "import of a computed name",
    "require(new TextDecoder().decode(new Uint8Array([118,109])));": "import of a computed name",
    "require(['v','m'].reduce((a,b)=>a+b));": "import of a computed name",
    "Object.entries(process).find(([k]) => k === 'binding')[1]('x')": "a global by a computed name",
    "eval(JSON.parse(y).code)": "eval(variable)",
}
# None of these gets at anything: a module is strict, so `this` of a plain call is undefined.
HARMLESS = ["this.process.binding('x')", "(function(){return this})().process.binding('x')", "this.eval('a'+x)"]
CLEAN = [
    "class A { eval(x) { return x; } run(x) { return this.eval('a' + x); } }",
    "class A { run = (x) => x; go(x) { return this.run('a' + x); } }",
    "const o = {}; o.eval = (x) => x; o.eval('a' + b);",
    "function f(run) { return run('a' + x); } f((x) => x);",
    "function f(require) { return require('vm'); } f((x) => x);",
    "for (const run of [(x) => x]) run('a' + x);",
    "const { binding } = settings; binding('x');",
    "process.env[name];",
    "let text = 'a'; text += x; send(text);",
    "new Map([['a', (x) => x]]).get('a')('a' + x);",
    "globalThis[Symbol.for('mine')] = 1;",
]


def _tokens(name: str) -> dict[str, str]:
    return {
        "m": name, "head": name[:1], "tail": name[1:], "reversed": name[::-1], "upper": name.upper(),
        "b64": base64.b64encode(name.encode()).decode(), "hex": name.encode().hex(), "code": f"{ord(name[0]):x}",
        "codes": ",".join(str(ord(letter)) for letter in name), "octal": f"{ord(name[0]):o}", "end": str(len(name) + 1),
        "length": str(len(name)), "escaped": f"\\u{ord(name[0]):04x}{name[1:]}",
        "hexed": f"\\x{ord(name[0]):02x}{name[1:]}",
    }  # fmt: skip


def _filled(template: str, name: str) -> bytes:
    for token, value in _tokens(name).items():
        template = template.replace(f"«{token}»", value)
    assert "«" not in template
    return template.encode()


def _messages(text: bytes) -> set[str]:
    return {finding.rule.message for finding in scan_text("a.ts", text, "ts")}


@pytest.mark.parametrize("disguise", LOADS)
def test_a_forbidden_module_is_found(disguise):
    for module in MODULES:
        text = _filled(LOADS[disguise], module)
        assert f"node:{module} is forbidden: {FORBIDDEN_MODULES[module]}." in _messages(text), text


@pytest.mark.parametrize("disguise", PROCESS)
def test_a_forbidden_member_of_process_is_found(disguise):
    for member, reason in (("binding", "Native module access"), ("dlopen", "Native addon loading")):
        text = _filled(PROCESS[disguise], member)
        assert f"process.{member}() is forbidden: {reason}." in _messages(text), text


@pytest.mark.parametrize("disguise", EVALS)
def test_eval_of_a_dynamic_string_is_found(disguise):
    found = _messages(EVALS[disguise].encode())
    assert "eval() with a dynamic string is forbidden: Arbitrary code execution." in found


@pytest.mark.parametrize("text", COMPUTED)
def test_what_only_a_run_can_tell_is_flagged(text):
    assert COMPUTED[text] in {finding.rule.api for finding in scan_text("a.ts", text.encode(), "ts")}


@pytest.mark.parametrize("text", [*HARMLESS, *CLEAN])
def test_what_gets_at_nothing_is_clean(text):
    assert scan_text("a.ts", text.encode(), "ts") == []


def test_one_of_several_texts_is_enough():
    assert _messages(b"require(x ? 'fs' : 'vm');") == {"node:vm is forbidden: Arbitrary code execution."}
    assert "node:vm is forbidden: Arbitrary code execution." in _messages(b"let n = 'fs'; n = 'vm'; require(n);")


def test_a_long_chain_of_names_is_followed():
    chain = "".join(f"const a{i + 1} = a{i};" for i in range(40))
    assert "eval() with a dynamic string" in {
        finding.rule.api for finding in scan_text("a.ts", f"const a0 = eval;{chain}a40('x' + y);".encode(), "ts")
    }
