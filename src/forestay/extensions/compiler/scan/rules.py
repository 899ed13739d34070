"""What the scanner looks for: the tables of Pi §2A.4, as data.

`FORBIDDEN` stops the build; `FLAGGED` is recorded as evidence. The messages are part of the contract of this compiler:
tests compare them to the letter.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from forestay.extensions.api_table import NODE_MODULES

Severity = Literal["forbidden", "flagged"]


class Rule(msgspec.Struct, frozen=True):
    """One API of the tables."""

    api: str
    severity: Severity
    reason: str

    @property
    def message(self) -> str:
        return f"{self.api} is {self.severity}: {self.reason}."

    @property
    def computing_only(self) -> Rule:
        """The same module where only members are taken that compute and reach nothing (`pure.py`)."""
        return Rule(self.api, "flagged", "Only its members that compute are there")

    @property
    def expected_missing(self) -> Rule:
        """The same API where a dependency only asks whether it is there: it is not, so nothing is used."""
        return Rule(self.api, "flagged", "A dependency asks whether it is there, and goes on without it")


MODULE_RULES = {
    name: Rule(f"node:{name}", "forbidden", row.forbidden) for name, row in NODE_MODULES.items() if row.forbidden
}

BINDING = Rule("process.binding()", "forbidden", "Native module access")
DLOPEN = Rule("process.dlopen()", "forbidden", "Native addon loading")
EVAL = Rule("eval() with a dynamic string", "forbidden", "Arbitrary code execution")

NEW_FUNCTION = Rule("new Function()", "flagged", "Code is made from a string")
EVAL_VARIABLE = Rule("eval(variable)", "flagged", "Code comes from a variable")
TIMEOUT_STRING = Rule("setTimeout(string)", "flagged", "A timer runs code from a string")
INTERVAL_STRING = Rule("setInterval(string)", "flagged", "A timer runs code from a string")
PROXY = Rule("Proxy", "flagged", "Reflection")
REFLECT = Rule("Reflect", "flagged", "Reflection")
DEFINE_PROPERTY = Rule("Object.defineProperty on a builtin", "flagged", "A builtin is changed")
UNPARSED = Rule("syntax", "flagged", "This part could not be parsed, so it was not scanned")
DYNAMIC_MODULE = Rule("import of a computed name", "flagged", "Which module is loaded is decided at run time")

COMPUTED_GLOBAL = Rule("a global by a computed name", "flagged", "Which member is used is decided at run time")

PROCESS_MEMBERS = {"binding": BINDING, "_linkedBinding": BINDING, "dlopen": DLOPEN}

GLOBAL_OBJECTS = frozenset({"globalThis", "global", "window", "self"})
BUILTINS = frozenset(
    """
    Array ArrayBuffer Atomics BigInt Boolean DataView Date Error EvalError Float32Array Float64Array Function
    Int16Array Int32Array Int8Array JSON Map Math Number Object Promise Proxy RangeError ReferenceError Reflect RegExp
    Set SharedArrayBuffer String Symbol SyntaxError TypeError URIError Uint16Array Uint32Array Uint8Array
    Uint8ClampedArray WeakMap WeakRef WeakSet globalThis console process
    """.split()
)

# Words without which a file cannot do anything on this page; a file that has none is not looked at further.
SEED_WORDS = frozenset(
    """
    eval Function constructor binding _linkedBinding dlopen setTimeout setInterval Proxy Reflect defineProperty
    defineProperties require createRequire getBuiltinModule globalThis global window self import export process module
    """.split()
)

# Where a use of an API on this page can begin (`reach.py`, R1).
DECISIVE_WORDS = frozenset(
    """
    eval Function constructor binding _linkedBinding dlopen setTimeout setInterval Proxy Reflect defineProperty
    defineProperties require createRequire getBuiltinModule globalThis global window self import process module
    __forestay_modules__
    """.split()
)

# Globals, and members of them, that lead to such a use from wherever they are handed.
LEADING = frozenset(
    """
    eval Function constructor binding _linkedBinding dlopen setTimeout setInterval Proxy Reflect Object module
    defineProperty defineProperties createRequire getBuiltinModule globalThis process import.meta mainModule require
    __forestay_modules__ __require call apply bind construct fetch XMLHttpRequest WebSocket EventSource
    """.split()
)
