"""What an expression stands for, as far as the text tells: a global, a module, a string, a function.

Not an interpreter: it follows names, members, aliases, destructuring, constant strings and functions that return one
expression, to the depth that hiding a forbidden name takes, and says "unknown" to everything else.
"""

from __future__ import annotations

from collections.abc import Callable

from tree_sitter import Node

from holdfast.extensions.compiler.rewrite import platform_module
from holdfast.extensions.compiler.scan.rules import BUILTINS, GLOBAL_OBJECTS
from holdfast.extensions.compiler.scan.strings import decoded, spelled, unescaped, unquoted
from holdfast.extensions.compiler.scan.syntax import File, call_arguments, text_of

# ("global", name, member…) | ("module", name, member…) | ("string", text) | ("function",) | ("prototype",)
# | ("require",) | ("wrapped", name): a module as the bundler wraps it | ("built",): a string with parts that vary.
Value = tuple[str, ...]
UNKNOWN: Value = ("unknown",)
FUNCTION: Value = ("function",)
REQUIRE: Value = ("require",)
BUILT: Value = ("built",)

_MAX_DEPTH = 24
_WRAPPED = "holdfast-raw:pi:node/"
_WRAPPERS = frozenset(
    """
    parenthesized_expression as_expression satisfies_expression non_null_expression await_expression
    type_assertion expression_statement
    """.split()
)
_FUNCTION_NODES = frozenset(
    "function_expression arrow_function generator_function function_declaration class class_declaration "
    "generator_function_declaration method_definition".split()
)


class Values:
    """Evaluates expressions of one file."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._memo: dict[int, frozenset[Value]] = {}
        self._depth = 0
        self._copies: dict[str, Node] | None = None
        self._assignments: dict[str, list[Node]] | None = None

    def of(self, node: Node | None) -> frozenset[Value]:
        """Everything that `node` may stand for."""
        if node is None:
            return frozenset()
        known = self._memo.get(node.id)
        if known is not None:
            return known
        if self._depth >= _MAX_DEPTH:
            return frozenset({UNKNOWN})
        self._memo[node.id] = frozenset({UNKNOWN})  # what a cycle sees
        self._depth += 1
        try:
            found = self._evaluate(node)
        finally:
            self._depth -= 1
        self._memo[node.id] = found
        return found

    def string(self, node: Node | None) -> str | None:
        """The constant text of an expression, if it has one."""
        return next((value[1] for value in self.of(node) if value[0] == "string"), None)

    def _evaluate(self, node: Node) -> frozenset[Value]:
        kind = node.type
        if kind in _WRAPPERS:
            return self.of(node.named_children[0]) if node.named_children else frozenset()
        if kind in _FUNCTION_NODES:
            return frozenset({FUNCTION})
        handler: Callable[[Node], frozenset[Value]] | None = getattr(self, "_" + kind, None)
        return handler(node) if handler else frozenset({UNKNOWN})

    def _string(self, node: Node) -> frozenset[Value]:
        return _text(unquoted(node))

    def _template_string(self, node: Node) -> frozenset[Value]:
        parts: list[str] = []
        for child in node.named_children:
            if child.type == "string_fragment":
                parts.append(text_of(child))
            elif child.type == "escape_sequence":
                parts.append(unescaped(text_of(child)))
            else:
                inner = self.string(child.named_children[0] if child.named_children else None)
                if inner is None:
                    return frozenset({BUILT})
                parts.append(inner)
        return _text("".join(parts))

    def _number(self, node: Node) -> frozenset[Value]:
        return frozenset({("number", text_of(node))})

    def _binary_expression(self, node: Node) -> frozenset[Value]:
        operator = node.child_by_field_name("operator")
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign = text_of(operator) if operator is not None else ""
        if sign in ("||", "&&", "??"):
            return self.of(left) | self.of(right)
        if sign != "+":
            return frozenset({UNKNOWN})
        a, b = self.string(left), self.string(right)
        if a is not None and b is not None:
            return _text(a + b)
        return frozenset({BUILT})

    def _ternary_expression(self, node: Node) -> frozenset[Value]:
        return self.of(node.child_by_field_name("consequence")) | self.of(node.child_by_field_name("alternative"))

    def _sequence_expression(self, node: Node) -> frozenset[Value]:
        return self.of(node.named_children[-1])

    def _assignment_expression(self, node: Node) -> frozenset[Value]:
        return self.of(node.child_by_field_name("right"))

    def _identifier(self, node: Node) -> frozenset[Value]:
        name = text_of(node)
        declared = self.file.declaration(node)
        if declared is None:
            if name == "require":
                return frozenset({REQUIRE})
            return frozenset({("global", "globalThis" if name in GLOBAL_OBJECTS else name)})
        if declared.type == "variable_declarator":
            return self._bound(declared, name) | self._reexported(name)
        if declared.type == "import_statement":
            return self._imported(declared, name)
        if declared.type in _FUNCTION_NODES:
            return frozenset({FUNCTION})
        return self._parameter(declared)

    _shorthand_property_identifier = _identifier

    def _parameter(self, declared: Node) -> frozenset[Value]:
        """A parameter is unknown, except for its default."""
        default = declared.child_by_field_name("right") or declared.child_by_field_name("value")
        if default is not None and declared.type in ("assignment_pattern", "required_parameter", "optional_parameter"):
            return self.of(default) | {UNKNOWN}
        return frozenset({UNKNOWN})

    def _bound(self, declarator: Node, name: str) -> frozenset[Value]:
        pattern, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
        if pattern is None or value is None:
            return self._assigned(name)
        if pattern.type == "identifier":
            return self.of(value)
        found = self._destructured(pattern, self.of(value), value, name)
        return found if found else frozenset({UNKNOWN})

    def _reexported(self, name: str) -> frozenset[Value]:
        """What the bundler copies into a namespace object: `__reExport(name, …)`."""
        if not name.endswith("_exports"):
            return frozenset()
        if self._copies is None:
            self._copies = {}
            for _, call in self.file.find('((call_expression function: (identifier) @f) @call (#eq? @f "__reExport"))'):
                given = call_arguments(call)
                if call.type == "call_expression" and len(given) > 1:
                    self._copies[text_of(given[0])] = given[1]
        return self.of(self._copies.get(name))

    def _assigned(self, name: str) -> frozenset[Value]:
        """`let f; f = eval;`: what is assigned anywhere in the file under this name."""
        if self._assignments is None:
            self._assignments = {}
            for _, node in self.file.find("(assignment_expression left: (identifier)) @assignment"):
                left = node.child_by_field_name("left")
                if left is not None:
                    self._assignments.setdefault(text_of(left), []).append(node)
        found: frozenset[Value] = frozenset({UNKNOWN})
        for node in self._assignments.get(name, ())[:16]:
            found |= self.of(node.child_by_field_name("right"))
        return found

    def _destructured(self, pattern: Node, base: frozenset[Value], source: Node, name: str) -> frozenset[Value]:
        for index, child in enumerate(pattern.named_children):
            if child.type == "shorthand_property_identifier_pattern" and text_of(child) == name:
                return self._members(base, name, source)
            if child.type == "object_assignment_pattern":
                left, right = child.child_by_field_name("left"), child.child_by_field_name("right")
                if left is not None and text_of(left) == name:
                    return self._members(base, name, source) | self.of(right)
            if child.type == "pair_pattern":
                key = self.key(child.child_by_field_name("key"))
                target = child.child_by_field_name("value")
                if target is None or key is None:
                    continue
                if target.type == "assignment_pattern":
                    target = target.child_by_field_name("left") or target
                if target.type == "identifier" and text_of(target) == name:
                    return self._members(base, key, source)
                if target.type in ("object_pattern", "array_pattern"):
                    inner = self._destructured(target, self._members(base, key, source), source, name)
                    if inner:
                        return inner
            if pattern.type == "array_pattern" and child.type == "identifier" and text_of(child) == name:
                return self._element(source, index)
        return frozenset()

    def _imported(self, statement: Node, name: str) -> frozenset[Value]:
        origin = self.string(statement.child_by_field_name("source"))
        module = platform_module(origin) if origin is not None else None
        clause = next((child for child in statement.named_children if child.type == "import_clause"), None)
        if clause is None or module is None:
            return frozenset({UNKNOWN})
        for child in clause.named_children:
            if child.type == "identifier" and text_of(child) == name:
                return _module(module)
            if child.type == "namespace_import":
                return _module(module)
            for specifier in child.named_children:
                exported = specifier.child_by_field_name("name")
                local = specifier.child_by_field_name("alias") or exported
                if local is not None and exported is not None and text_of(local) == name:
                    member = text_of(exported)
                    return _module(module) if member == "default" else _step(_module(module), member)
        return frozenset({UNKNOWN})

    def _member_expression(self, node: Node) -> frozenset[Value]:
        prop = node.child_by_field_name("property")
        target = node.child_by_field_name("object")
        return self._members(self.of(target), text_of(prop), target) if prop is not None else frozenset({UNKNOWN})

    def _subscript_expression(self, node: Node) -> frozenset[Value]:
        index, target = node.child_by_field_name("index"), node.child_by_field_name("object")
        if index is not None and index.type == "number" and target is not None:
            return self._element(target, int(text_of(index)) if text_of(index).isdigit() else 0)
        key = self.string(index)
        return self._members(self.of(target), key, target) if key is not None else frozenset({UNKNOWN})

    def _members(self, base: frozenset[Value], key: str, target: Node | None) -> frozenset[Value]:
        found = _step(base, key)
        if key == "constructor" and target is not None and self._is_function(base, target):
            found |= {("global", "Function")}
        literal = self.literal(target)
        if literal is not None:
            found |= self._property(literal, key)
        return found or frozenset({UNKNOWN})

    def _is_function(self, base: frozenset[Value], target: Node) -> bool:
        if any(
            value in (FUNCTION, ("prototype",)) or (value[0] == "global" and value[1] in BUILTINS) for value in base
        ):
            return True
        if target.type in ("member_expression", "subscript_expression"):
            prop = target.child_by_field_name("property")
            key = text_of(prop) if prop is not None else self.string(target.child_by_field_name("index"))
            return key == "constructor"
        return False

    def literal(self, node: Node | None) -> Node | None:
        """The object or array literal that `node` is, directly or through one name."""
        for _ in range(4):
            if node is None:
                return None
            if node.type in ("object", "array"):
                return node
            if node.type in _WRAPPERS and node.named_children:
                node = node.named_children[0]
                continue
            if node.type != "identifier":
                return None
            declared = self.file.declaration(node)
            if declared is None or declared.type != "variable_declarator":
                return None
            node = declared.child_by_field_name("value")
        return None

    def _property(self, literal: Node, key: str) -> frozenset[Value]:
        for child in literal.named_children:
            if child.type == "pair" and self.key(child.child_by_field_name("key")) == key:
                return self.of(child.child_by_field_name("value"))
            if child.type == "shorthand_property_identifier" and text_of(child) == key:
                return self.of(child)
            if child.type == "method_definition":
                name = child.child_by_field_name("name")
                if name is not None and text_of(name) == key and child.children[0].type == "get":
                    return self._returned(child)
        return frozenset()

    def _element(self, target: Node, index: int) -> frozenset[Value]:
        literal = self.literal(target)
        if literal is None or literal.type != "array" or index >= len(literal.named_children):
            return frozenset({UNKNOWN})
        return self.of(literal.named_children[index])

    def key(self, node: Node | None) -> str | None:
        """The constant name of a property."""
        if node is None:
            return None
        if node.type == "computed_property_name":
            return self.string(node.named_children[0])
        return unquoted(node) if node.type == "string" else text_of(node)

    def _call_expression(self, node: Node) -> frozenset[Value]:
        callee, arguments = node.child_by_field_name("function"), call_arguments(node)
        if callee is None:
            return frozenset({UNKNOWN})
        if callee.type == "import":
            return self._loaded(arguments)
        if callee.type == "identifier" and text_of(callee) in ("__toESM", "__commonJS", "__toCommonJS"):
            return self._bundled(text_of(callee), arguments)
        text = spelled(self, callee, arguments)
        if text is not None:
            return _text(text)
        found: frozenset[Value] = frozenset()
        for value in self.of(callee):
            found |= self._called(value, callee, arguments)
        return found or frozenset({UNKNOWN})

    def _bundled(self, helper: str, arguments: list[Node]) -> frozenset[Value]:
        """The bundler's own wrappers around a module."""
        if helper != "__commonJS":
            return self.of(arguments[0]) if arguments else frozenset()
        for child in arguments[0].named_children if arguments else ():
            name = child.child_by_field_name("name") or child.child_by_field_name("key")
            key = self.key(name) or ""
            if key.startswith(_WRAPPED):
                return frozenset({("wrapped", key.removeprefix(_WRAPPED))})
        return frozenset({UNKNOWN})

    def _called(self, value: Value, callee: Node, arguments: list[Node]) -> frozenset[Value]:
        first = arguments[0] if arguments else None
        second = arguments[1] if len(arguments) > 1 else None
        if value == REQUIRE or value[-1] == "__require":
            return self._loaded(arguments)
        if value[0] == "wrapped":
            return _module(value[1].replace("_promises", "/promises"))
        if value == ("module", "module", "createRequire"):
            return frozenset({REQUIRE})
        if value == ("global", "process", "getBuiltinModule") or value[:2] == ("global", "__holdfast_modules__"):
            return self._loaded(arguments)
        if value in (("global", "Reflect", "get"), ("global", "Object", "getOwnPropertyDescriptor")):
            key = self.string(second)
            return self._members(self.of(first), key, first) if key is not None else frozenset()
        if value in (("global", "Object", "getPrototypeOf"), ("global", "Reflect", "getPrototypeOf")):
            return frozenset({("prototype",)}) if FUNCTION in self.of(first) else frozenset()
        if value == ("global", "atob"):
            text = decoded(self.string(first))
            return _text(text) if text is not None else frozenset()
        if value[-1] == "bind":
            return frozenset({value[:-1]})
        if value == FUNCTION:
            return self._returned(self._function(callee))
        return frozenset()

    def _loaded(self, arguments: list[Node]) -> frozenset[Value]:
        name = self.string(arguments[0]) if arguments else None
        if name is None:
            return frozenset({UNKNOWN})
        module = platform_module(name)
        if module is None and name.startswith("pi:node/"):
            module = name.removeprefix("pi:node/")
        return _module(module) if module is not None else frozenset({UNKNOWN})

    def _function(self, callee: Node | None) -> Node | None:
        for _ in range(4):
            if callee is None or callee.type in _FUNCTION_NODES:
                return callee
            if callee.type in _WRAPPERS and callee.named_children:
                callee = callee.named_children[0]
            elif callee.type == "identifier":
                declared = self.file.declaration(callee)
                is_variable = declared is not None and declared.type == "variable_declarator"
                callee = declared.child_by_field_name("value") if is_variable and declared is not None else declared
            else:
                return None
        return None

    def _returned(self, function: Node | None) -> frozenset[Value]:
        """What a function returns that is one expression, or whose body is one return."""
        body = function.child_by_field_name("body") if function is not None else None
        if body is None:
            return frozenset()
        if body.type != "statement_block":
            return self.of(body)
        statements = [child for child in body.named_children if child.type != "comment"]
        if len(statements) == 1 and statements[0].type == "return_statement" and statements[0].named_children:
            return self.of(statements[0].named_children[0])
        return frozenset()


def _step(base: frozenset[Value], key: str) -> frozenset[Value]:
    """The member `key` of every value that has a path."""
    found: set[Value] = set()
    for value in base:
        if value == ("global", "globalThis"):
            found.add(("require",) if key == "require" else ("global", "globalThis" if key in GLOBAL_OBJECTS else key))
        elif value[0] == "module" and len(value) == 2 and key == "default":
            found.add(value)
        elif value[0] in ("global", "module"):
            # A property descriptor's `value` is the thing itself.
            path = value if key == "value" else (*value, key)
            found.add(REQUIRE if path == ("global", "module", "require") else path)
        elif value == REQUIRE and key in ("call", "apply", "bind"):
            found.add((*value, key))
    return frozenset(found)


def _module(name: str) -> frozenset[Value]:
    return frozenset({("global", "process")}) if name == "process" else frozenset({("module", name)})


def _text(text: str) -> frozenset[Value]:
    return frozenset({("string", text)})
