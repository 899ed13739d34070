"""Programs that hide a decisive value behind a chain of ordinary code, each made from a seed."""

from __future__ import annotations

import random

# What is hidden, and what is done with it in the end.
_HIDDEN = (
    ("eval", "«x»('a' + y);"),
    ("globalThis.eval", "«x»(`${y}`);"),
    ("Function", "new «x»('return ' + y);"),
    ("(() => {}).constructor", "«x»('return 1')();"),
    ("process", "«x».binding('fs');"),
    ("process.binding", "«x»('fs');"),
    ("process['bind' + 'ing']", "«x»('fs');"),
    ("require", "«x»('vm');"),
    ("require", "«x»('v' + 'm');"),
    ("setTimeout", "«x»('go()', 1);"),
    ("Object.defineProperty", "«x»(Array.prototype, 'at', {});"),
    ("globalThis", "«x»['ev' + 'al'](y + 'a');"),
    ("'vm'", "require(«x»);"),
    ("'ev' + 'al'", "globalThis[«x»]('1' + y);"),
    ("process.getBuiltinModule", "«x»('node:worker_threads');"),
    ("console.log", "«x»('clean');"),
    ("Math.max", "«x»(1, 2);"),
)

# Statements, and the expression that stands for the value after them.
_STEPS = (
    ("const «v» = «x»;", "«v»"),
    ("let «v»; «v» = «x»;", "«v»"),
    ("let «v» = null; if (y) «v» ??= «x»;", "«v»"),
    ("const «v» = { k: «x», other: 1 };", "«v».k"),
    ("const «v» = { k: «x» };", "«v»['k']"),
    ("const «v» = [«x», 2];", "«v»[0]"),
    ("const «v» = {}; «v».k = «x»;", "«v».k"),
    ("const { k: «v» } = { k: «x» };", "«v»"),
    ("const { «v» = «x» } = {};", "«v»"),
    ("const [«v»] = [«x»];", "«v»"),
    ("const «v» = { get k() { return «x»; } };", "«v».k"),
    ("function «v»() { return «x»; }", "«v»()"),
    ("const «v» = () => «x»;", "«v»()"),
    ("const «v» = () => () => «x»;", "«v»()()"),
    ("class «v» { static f = «x»; }", "«v».f"),
    ("class C«v» { f = «x»; } const «v» = new C«v»();", "«v».f"),
    ("const «v» = y ? «x» : null;", "«v»"),
    ("const «v» = y || «x»;", "«v»"),
    ("const «v» = (0, «x»);", "«v»"),
    ("const «v» = Object.assign({}, { k: «x» });", "«v».k"),
    ("const «v» = new Map([['k', «x»]]);", "«v».get('k')"),
    ("const «v» = Reflect.get({ k: «x» }, 'k');", "«v»"),
    ("const «v» = [...[«x»]];", "«v»[0]"),
    ("function «v»(eval, process) { return eval; }", "«x»"),
    ("const «v» = [1, 2].map((n) => n + 1).join('-');", "«x»"),
)

# Code around the rest of the program, in which a name stands for the value.
_AROUND = (
    ("function «v»(p«v») { «rest» } «v»(«x»);", "p«v»"),
    ("((p«v») => { «rest» })(«x»);", "p«v»"),
    ("(function (a, ...r«v») { «rest» })(1, «x»);", "r«v»[0]"),
    ("function «v»(p«v» = «x») { «rest» } «v»();", "p«v»"),
    ("function «v»({ k: p«v» }) { «rest» } «v»({ k: «x» });", "p«v»"),
    ("for (const p«v» of [«x»]) { «rest» }", "p«v»"),
    ("[«x»].forEach((p«v») => { «rest» });", "p«v»"),
    ("try { throw «x»; } catch (p«v») { «rest» }", "p«v»"),
    ("class «v» { f = «x»; go() { «rest» } }", "this.f"),
    ("class «v» { constructor() { this.f = «x»; } go() { «rest» } }", "this.f"),
    ("function «v»() { «rest» }", "«x»"),
    ("if (y) { const «v» = 1; «rest» }", "«x»"),
)


# `constructor`, by which every function leads to `Function`, where no word of the text says so.
_MADE_UP = (
    ("(() => {})['con' + 'structor']", "«x»('return 1')();"),
    ("(function () {})[['constr', 'uctor'].join('')]", "«x»('return ' + y);"),
    ("'con' + 'structor'", "(() => {})[«x»]('return 1')();"),
    ("(() => {})", "«x»[`con${'structor'}`]('return 1')();"),
    ("'rotcurtsnoc'.split('').reverse().join('')", "(() => {})[«x»]('return 1');"),
    ("'constructor'", "const { [«x»]: made } = () => {}; made('return 1');"),
)


def made_up(seed: int) -> str:
    """The program of a seed that makes up the word `constructor`, or does not come to use it."""
    chance = random.Random(seed)
    hidden, end = chance.choice(_MADE_UP)
    return _hide(chance, hidden, end, chance.randrange(0, 5), 0)


def program(seed: int) -> str:
    """The program of a seed."""
    chance = random.Random(seed)
    hidden, end = chance.choice(_HIDDEN)
    return _hide(chance, hidden, end, chance.randrange(1, 6), 0)


def _hide(chance: random.Random, value: str, end: str, left: int, depth: int) -> str:
    if left == 0:
        return end.replace("«x»", value)
    name = f"n{depth}"
    if chance.random() < 0.6:
        before, after = (part.replace("«v»", name).replace("«x»", value) for part in chance.choice(_STEPS))
        return f"{before}\n{_hide(chance, after, end, left - 1, depth + 1)}"
    around, inner = (part.replace("«v»", name) for part in chance.choice(_AROUND))
    rest = _hide(chance, inner.replace("«x»", value), end, left - 1, depth + 1)
    return around.replace("«x»", value).replace("«rest»", rest)
