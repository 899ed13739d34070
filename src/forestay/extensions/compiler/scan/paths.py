"""The paths of values: a global, a module or `require`, and the members on the way to it. The scanner (`values.py`)
finds which of them an expression stands for."""

from __future__ import annotations

from forestay.extensions.compiler.rewrite import platform_module
from forestay.extensions.compiler.scan.constants import UNKNOWN, Value
from forestay.extensions.compiler.scan.rules import GLOBAL_OBJECTS

FUNCTION: Value = ("function",)
REQUIRE: Value = ("require",)

_REQUIRES = {  # other names of `require`
    ("module", "module", "_load"), ("module", "module", "prototype", "require"), ("global", "module", "require"),
    ("global", "module", "constructor", "_load"), ("global", "process", "mainModule", "require"),
    ("require", "main", "require"), ("global", "import.meta", "require"),
}  # fmt: skip
# Functions that give back what they were given, or something that has its members.
THROUGH = {
    ("global", "Object"), ("global", "Object", "create"), ("global", "Object", "freeze"), ("global", "Object", "seal"),
    ("global", "Object", "assign"), ("global", "Object", "getOwnPropertyDescriptors"), ("global", "Proxy"),
    ("global", "Promise", "resolve"), ("global", "WeakRef"),
}  # fmt: skip
# What holds the elements of the list that it is made of.
HOLDERS = {
    ("global", "Map"), ("global", "Set"), ("global", "Array", "of"), ("global", "Array", "from"),
    ("global", "Object", "values"), ("global", "Object", "entries"), ("global", "Object", "fromEntries"),
}  # fmt: skip
# Methods that give an element of a list, or hand each to a function.
PICKS = frozenset("at pop shift find findLast get deref next values slice filter concat flat".split())
ITERATORS = frozenset("forEach map filter find findLast some every flatMap then".split())


def step(base: frozenset[Value], key: str) -> frozenset[Value]:
    """The member `key` of every value that has a path."""
    found: set[Value] = set()
    for value in base:
        if value == ("global", "globalThis"):
            found.add(("require",) if key == "require" else ("global", "globalThis" if key in GLOBAL_OBJECTS else key))
        elif value[0] == "module" and len(value) == 2 and key == "default":
            found.add(value)
        elif value[0] in ("global", "module", "require"):
            # A property descriptor's `value` is the thing itself.
            path = value if key == "value" else (*value, key)
            found.add(REQUIRE if path in _REQUIRES else path)
    return frozenset(found)


def module_value(name: str) -> frozenset[Value]:
    return frozenset({("global", "process")}) if name == "process" else frozenset({("module", name)})


def loaded(name: str | None) -> frozenset[Value]:
    """The module of a specifier."""
    module = platform_module(name) if name is not None else None
    if module is None and name is not None and name.startswith("pi:node/"):
        module = name.removeprefix("pi:node/")
    return module_value(module) if module is not None else frozenset({UNKNOWN})
