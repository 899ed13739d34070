"""Where a file uses an API of the tables: calls, constructions, member reads, imports.

1. A use is found by what an expression stands for, not by how it is spelled (`values.py`).
2. Code in a constant string that is evaluated is scanned too.
3. What cannot be parsed is a finding, never clean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec
from tree_sitter import Node

from forestay.extensions.compiler.artifact import Location
from forestay.extensions.compiler.rewrite import node_builtin
from forestay.extensions.compiler.scan import rules
from forestay.extensions.compiler.scan.constants import BUILT, UNKNOWN, Value
from forestay.extensions.compiler.scan.guards import is_caught, is_tested
from forestay.extensions.compiler.scan.paths import ITERATORS, REQUIRE, loaded
from forestay.extensions.compiler.scan.pure import is_pure
from forestay.extensions.compiler.scan.reach import Reach
from forestay.extensions.compiler.scan.rules import Rule
from forestay.extensions.compiler.scan.syntax import Dialect, File, call_arguments, text_of
from forestay.extensions.compiler.scan.values import Values
from forestay.extensions.compiler.scan.words import any_of

_SEEDS = re.compile(rb"\\u|\\x|\b" + any_of(rules.SEED_WORDS) + rb"\b")
DECISIVE = re.compile(rb"\b" + any_of(rules.DECISIVE_WORDS) + rb"\b")
_MEMBERS = frozenset("binding _linkedBinding dlopen Proxy Reflect eval".split())
_NAMES = frozenset("eval Proxy Reflect require".split())
_EVAL: Value = ("global", "eval")
_FUNCTION: Value = ("global", "Function")
_FUNCTION_CALL = ("global", "Function", "prototype")
_TIMERS = {"setTimeout": rules.TIMEOUT_STRING, "setInterval": rules.INTERVAL_STRING}
_DEFINES = {
    ("global", "Object", "defineProperty"), ("global", "Object", "defineProperties"),
    ("global", "Reflect", "defineProperty"),
}  # fmt: skip
_LISTS = {("global", "Object", "entries"), ("global", "Object", "values")}
_MEMBER_RULES = frozenset(rules.PROCESS_MEMBERS.values())
MODULES = frozenset({"module", "process"})  # through whose members an API of the tables is reached
_MAX_NESTING = 3


class Finding(msgspec.Struct, frozen=True):
    """One use: which rule, where, and the text that shows it."""

    rule: Rule
    location: Location
    text: str
    module: str = ""
    is_static: bool = False  # by an import or export statement, which may stand for types only
    is_guarded: bool = False  # feature detection: the code goes on without it
    is_in_text: bool = False  # in code that is made of a text, which is no import that a bundler sees


def scan_text(name: str, text: bytes, dialect: Dialect, nesting: int = 0) -> list[Finding]:
    """Every finding of one file, in the order of the text."""
    file = File(name, text, dialect)
    if not has_uses(text) and b"[" not in text:
        return unparsed(file)
    values = Values(file)
    return findings(file, values, Reach(file, values, DECISIVE, MODULES), nesting)


def has_uses(text: bytes) -> bool:
    """Whether a text has any word without which it cannot use an API of the tables."""
    return _SEEDS.search(text) is not None


def findings(file: File, values: Values, reach: Reach, nesting: int = 0) -> list[Finding]:
    """Every finding of a file that is read already, in the order of the text."""
    return ordered(unparsed(file) + _Uses(file, values, reach, nesting).all())


def ordered(found: Iterable[Finding]) -> list[Finding]:
    """Each finding once, in the order of the text."""
    unique = {(item.rule, item.location, item.module): item for item in found}
    return sorted(unique.values(), key=lambda item: (item.location, item.rule.api))


def unparsed(file: File) -> list[Finding]:
    """What cannot be parsed is a finding, never clean."""
    return [Finding(rules.UNPARSED, file.location(node), file.beginning(node, 200)) for node in file.errors()]


class _Uses:
    def __init__(self, file: File, values: Values, reach: Reach, nesting: int) -> None:
        self.file = file
        self.values = values
        self.reach = reach
        self.nesting = nesting
        self.found: list[Finding] = []

    def all(self) -> list[Finding]:
        for node in (*self.file.nodes("imported"), *self.file.nodes("export")):
            self._static_import(node)
        for node in self.reach.calls.values():
            self._call(node)
        for node in self.reach.names.values():
            self._word(node)
        for node in self.reach.patterns.values():
            self._pattern(node)
        for node in self.reach.subscripts.values():
            self._member(node)
        return self.found

    def _word(self, node: Node) -> None:
        if node.type == "identifier" and text_of(node) in _NAMES:
            self._name(node)
        elif node.type == "property_identifier" and text_of(node) in _MEMBERS:
            outer = node.parent
            if outer is not None and outer.type == "member_expression":
                self._member(outer)

    def _add(self, rule: Rule, node: Node, text: str | None = None, module: str = "", is_static: bool = False) -> None:
        shown = text if text is not None else self.file.beginning(node)
        if module:
            is_guarded = not is_static and self.nesting == 0 and is_caught(node)
        else:
            is_guarded = rule in _MEMBER_RULES and self.nesting == 0 and is_tested(node)
        self.found.append(Finding(rule, self.file.location(node), shown[:2000], module, is_static, is_guarded))

    def _static_import(self, statement: Node) -> None:
        for child in statement.named_children:  # `import x = require("y")`
            required = child.child_by_field_name("source") if child.type == "import_require_clause" else None
            if required is not None:
                self._module(self.values.string(required), required)
        source = statement.child_by_field_name("source")
        if source is not None and not any(child.type in ("type", "typeof") for child in statement.children):
            self._module(self.values.string(source), source, is_static=True)
            if ("global", "process") in loaded(self.values.string(source)):
                self._taken_of_process(statement)

    def _taken_of_process(self, statement: Node) -> None:
        """`export { binding } from "node:process"`: handed on without a use here."""
        for clause in statement.named_children:
            for child in (
                *clause.named_children,
                *(inner for one in clause.named_children for inner in one.named_children),
            ):
                name = (
                    child.child_by_field_name("name")
                    if child.type in ("import_specifier", "export_specifier")
                    else None
                )
                if name is not None and text_of(name) in rules.PROCESS_MEMBERS:
                    self._add(rules.PROCESS_MEMBERS[text_of(name)], child)

    def _module(self, specifier: str | None, node: Node, is_static: bool = False) -> None:
        name = node_builtin(specifier) if specifier is not None else None
        rule = rules.MODULE_RULES.get(name) if name is not None else None
        if rule is not None and name is not None:
            used = rule.computing_only if is_pure(self.file, node, name) else rule
            self._add(used, node, module=name, is_static=is_static)

    def _call(self, node: Node) -> None:
        callee = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        if callee is None:
            return
        arguments = call_arguments(node)
        if callee.type == "import":
            self._load(node, arguments)
            return
        for value in self.values.of(callee):
            self._use(value, node, arguments)
        self._handed_on(callee, node, arguments)

    def _handed_on(self, callee: Node, node: Node, arguments: list[Node]) -> None:
        """`["a" + x].map(eval)`, `promise.then(require)`: a call with each element."""
        prop = callee.child_by_field_name("property")
        target = callee.child_by_field_name("object")
        if prop is None or target is None or not arguments or text_of(prop) not in ITERATORS:
            return
        for value in self.values.of(arguments[0]):
            if value in (_EVAL, REQUIRE, _FUNCTION):
                for element in self.values.elements(target):
                    self._use(value, node, [element])

    def _use(self, value: Value, node: Node, arguments: list[Node]) -> None:
        if value[:3] == _FUNCTION_CALL and value[-1] in ("call", "apply") and len(value) > 4 and arguments:
            for inner in self.values.of(arguments[0]):
                self._use((*inner, value[-1]), node, arguments[1:])
            return None
        if (value[-1] == "bind" and len(value) > 1 and len(arguments) > 1) or (value[-1] == "call" and len(value) > 1):
            value, arguments = value[:-1], arguments[1:]
        elif value[-1] == "apply" and len(value) > 1 and value[0] != "unknown":
            value, arguments = value[:-1], self._spread(arguments[1:])
            if value == ("global", "Reflect"):
                return self._reflected(node, "apply")
        elif value == ("global", "Reflect", "construct"):
            return self._reflected(node, "construct")
        if value == _EVAL:
            self._eval(node, self._unspread(arguments))
        elif value == _FUNCTION or (value[:2] == _FUNCTION and value[-1] == "constructor"):
            self._function(node, arguments)
        elif value[0] == "global" and value[-1] in _TIMERS and len(value) == 2:
            self._timer(_TIMERS[value[-1]], node, arguments)
        elif value in _LISTS and arguments and ("global", "process") in self.values.of(arguments[0]):
            self._add(rules.COMPUTED_GLOBAL, node)
        elif value in _DEFINES and arguments:
            self._define(node, arguments[0])
        elif value[:2] == ("global", "process") and value[-1] in rules.PROCESS_MEMBERS:
            self._add(rules.PROCESS_MEMBERS[value[-1]], node)
        elif value == REQUIRE or value in (("global", "process", "getBuiltinModule"), ("module", "module", "require")):
            self._load(node, arguments)
        elif value[:2] == ("global", "__forestay_modules__") and arguments:
            for name in self.values.strings(arguments[0]):
                if name.startswith("pi:node/"):
                    self._module("node:" + name.removeprefix("pi:node/"), node)
        return None

    def _unspread(self, arguments: list[Node]) -> list[Node]:
        """`f(...[x])` is `f(x)`."""
        if arguments and arguments[0].type == "spread_element":
            literal = self.values.literal(arguments[0].named_children[0])
            return literal.named_children if literal is not None else arguments
        return arguments

    def _reflected(self, node: Node, how: str) -> None:
        """`Reflect.apply(f, self, [args])` and `Reflect.construct(f, [args])` are calls of `f`."""
        arguments = call_arguments(node)
        if not arguments:
            return
        given = self._spread(arguments[2:] if how == "apply" else arguments[1:])
        for value in self.values.of(arguments[0]):
            self._use(value, node, given)

    def _spread(self, arguments: list[Node]) -> list[Node]:
        if arguments and arguments[0].type == "array":
            return arguments[0].named_children
        return arguments

    def _eval(self, node: Node, arguments: list[Node]) -> None:
        if not arguments:
            return
        values, constants = self.values.of(arguments[0]), self.values.strings(arguments[0])
        for constant in constants:
            self._nested(constant, node)
        if BUILT in values or (UNKNOWN in values and not _is_variable(arguments[0])):
            self._add(rules.EVAL, node)
        elif not constants or UNKNOWN in values:
            self._add(rules.EVAL_VARIABLE, node)

    def _function(self, node: Node, arguments: list[Node]) -> None:
        bodies = self.values.strings(arguments[-1]) if arguments else [""]
        for body in bodies or [text_of(arguments[-1])]:
            self._add(rules.NEW_FUNCTION, node, body)
        for body in bodies:
            self._nested(f"(function(){{{body}\n}})", node)

    def _timer(self, rule: Rule, node: Node, arguments: list[Node]) -> None:
        if not arguments:
            return
        constants = self.values.strings(arguments[0])
        if not constants and BUILT not in self.values.of(arguments[0]):
            return
        for constant in constants or [text_of(arguments[0])]:
            self._add(rule, node, constant)
        for constant in constants:
            self._nested(constant, node)

    def _define(self, node: Node, target: Node) -> None:
        for value in self.values.of(target):
            is_builtin = value[0] == "global" and value[1] in rules.BUILTINS
            if is_builtin and (len(value) == 2 or value[2:] == ("prototype",)):
                self._add(rules.DEFINE_PROPERTY, node)

    def _load(self, node: Node, arguments: list[Node]) -> None:
        """`require(x)`, `import(x)`: a module by constant name, or a name that is only known at run time."""
        if not arguments:
            return
        name = self._unspread(arguments)[0]
        specifiers = self.values.strings(name)
        if not specifiers or not self.values.of(name).isdisjoint((BUILT, UNKNOWN)):
            self._add(rules.DYNAMIC_MODULE, node)
        for specifier in specifiers:
            self._module(specifier, arguments[0])

    def _nested(self, code: str, node: Node) -> None:
        """Code in a string, scanned; its findings are at the string's place."""
        if self.nesting >= _MAX_NESTING:
            return
        for finding in scan_text(self.file.name, code.encode(), "js", self.nesting + 1):
            if finding.rule is not rules.UNPARSED:
                self._add(finding.rule, node, finding.text, finding.module)
                self.found[-1] = msgspec.structs.replace(self.found[-1], is_in_text=True)

    def _member(self, node: Node) -> None:
        prop, index = node.child_by_field_name("property"), node.child_by_field_name("index")
        if prop is not None:
            keys = [text_of(prop)]
        elif index is not None and index.type != "number":
            keys = self.values.strings(index)
        else:
            keys = []
        for key in keys:
            self._key(node, key)
        if not keys and index is not None and index.type not in ("number", "unary_expression"):
            self._any_key(node)

    def _key(self, node: Node, key: str) -> None:
        if key in rules.PROCESS_MEMBERS and ("global", "process", key) in self.values.of(node):
            self._add(rules.PROCESS_MEMBERS[key], node)
        elif key in ("Proxy", "Reflect") and ("global", key) in self.values.of(node):
            self._add(rules.PROXY if key == "Proxy" else rules.REFLECT, node)
        elif key == "eval" and _EVAL in self.values.of(node):
            self._reference(node)

    def _any_key(self, node: Node) -> None:
        """A member of `process` by a name that only the run knows, and a global so called."""
        base = self.values.of(node.child_by_field_name("object"))
        outer = node.parent
        is_called = outer is not None and outer.type == "call_expression" and outer.named_children[0].id == node.id
        if ("global", "process") in base or (("global", "globalThis") in base and is_called):
            self._add(rules.COMPUTED_GLOBAL, node)

    def _pattern(self, node: Node) -> None:
        """`const {binding} = process`."""
        pattern = node.child_by_field_name("name") or node.child_by_field_name("left")
        source = node.child_by_field_name("value") or node.child_by_field_name("right")
        if pattern is None or ("global", "process") not in self.values.of(source):
            return
        for child in pattern.named_children:
            key = child.child_by_field_name("key") or child.child_by_field_name("left") or child
            for name in self.values.keys(key):
                if name in rules.PROCESS_MEMBERS:
                    self._add(rules.PROCESS_MEMBERS[name], child)

    def _name(self, node: Node) -> None:
        name = text_of(node)
        if name in ("eval", "require") and self.file.declaration(node) is None:
            self._reference(node, rules.EVAL_VARIABLE if name == "eval" else rules.DYNAMIC_MODULE)
        elif name in ("Proxy", "Reflect") and self.file.declaration(node) is None:
            self._add(rules.PROXY if name == "Proxy" else rules.REFLECT, node, self.file.beginning(node.parent or node))

    def _reference(self, node: Node, rule: Rule = rules.EVAL_VARIABLE) -> None:
        """`eval` or `require` handed on as a value: its receiver may call it with anything."""
        parent = node.parent
        if parent is not None and parent.type in _HANDS_ON:
            call = parent.parent
            if call is not None and (
                _is_known_call(call, self.values) or (rule is rules.DYNAMIC_MODULE and _asks(call))
            ):
                return
            self._add(rule, node)


_HANDS_ON = frozenset(
    """
    arguments pair array return_statement export_clause export_specifier export_statement spread_element
    public_field_definition field_definition yield_expression throw_statement shorthand_property_identifier
    """.split()
)


def _asks(call: Node) -> bool:
    """A call that only looks at what it is given."""
    callee = call.child_by_field_name("function")
    return callee is not None and callee.type == "identifier" and text_of(callee) in ("Boolean", "String")


def _is_known_call(call: Node, values: Values) -> bool:
    """Calls that `_use` follows on its own."""
    callee = call.child_by_field_name("function")
    followed = {("global", "Reflect", "apply"), ("global", "Reflect", "construct"), ("global", "Reflect", "get")}
    return callee is not None and not followed.isdisjoint(values.of(callee))


def _is_variable(node: Node) -> bool:
    """A name or a member of one: code that comes from elsewhere, not built here."""
    kinds: Callable[[str], bool] = {
        "identifier", "member_expression", "subscript_expression", "this", "non_null_expression", "as_expression",
    }.__contains__  # fmt: skip
    return kinds(node.type)
